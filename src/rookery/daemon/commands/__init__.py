"""Commands that the command line runs in the daemon's package."""
