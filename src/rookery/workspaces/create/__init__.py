"""Create workspaces, and finish or undo creations that a crash interrupted."""
