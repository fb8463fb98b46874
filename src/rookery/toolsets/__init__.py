"""The MCP tools that Rookery itself serves, one module or package for each toolset."""
