"""Network protocols: HTTP and MCP, as client and as server."""
