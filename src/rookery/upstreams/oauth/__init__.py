"""OAuth sign-in to MCP servers, done by the official SDK in a helper process."""
