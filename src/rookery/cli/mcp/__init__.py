"""`rookery mcp`: the MCP servers behind Rookery."""
