"""The client role of MCP: connections to servers, requests in flight and subscriptions."""
