"""Start, watch and stop processes."""
