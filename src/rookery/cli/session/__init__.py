"""`rookery session`: the sessions of agents."""
