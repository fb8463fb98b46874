"""Git status of workspaces: changes, history against the base, merges and diffs."""
