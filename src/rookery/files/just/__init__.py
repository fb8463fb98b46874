"""just: read, show and run the recipes of a workspace's justfile."""
