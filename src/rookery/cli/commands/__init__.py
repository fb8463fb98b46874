"""Top-level commands, and groups of commands that fit into one module."""
