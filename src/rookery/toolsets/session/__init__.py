"""The `session` toolset."""
