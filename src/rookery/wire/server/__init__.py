"""The server role of MCP: sessions, calls, the fast path and all transports of an endpoint."""
