"""`rookery agent`: the agents of workspaces."""
