"""The operations on MCP servers."""
