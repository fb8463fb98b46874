"""Projects and their worktrees."""
