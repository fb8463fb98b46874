"""Files of a workspace: sandboxed reading, listing and saving, just recipes and project context."""
