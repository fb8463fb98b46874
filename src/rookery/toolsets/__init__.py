"""The MCP tools that Rookery itself serves, one file a toolset."""
