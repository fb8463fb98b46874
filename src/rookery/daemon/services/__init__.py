"""The services that make up the daemon."""
