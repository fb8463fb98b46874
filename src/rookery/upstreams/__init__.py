"""The MCP servers that Rookery connects to: their definitions, and the connections to them."""
