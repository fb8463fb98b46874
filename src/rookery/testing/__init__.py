"""What tests of agents are made with: a model that plays a script."""
