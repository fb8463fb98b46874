"""The configuration of MCP servers: files, dialects, definitions, and edits."""
