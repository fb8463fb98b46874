"""Open and close workspaces, with their tokens and the services that belong to them."""
