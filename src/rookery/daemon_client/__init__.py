"""The connection to the daemon that the command line and the SDK share: find it, start it, send requests."""
