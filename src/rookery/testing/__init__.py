"""Tools for tests of agents: a model that plays a script."""
