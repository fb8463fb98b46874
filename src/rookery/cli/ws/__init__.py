"""`rookery ws`: workspaces."""
