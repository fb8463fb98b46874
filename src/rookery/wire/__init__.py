"""HTTP and MCP on the wire."""
