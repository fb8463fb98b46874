"""The MCP endpoints: routing of requests to views."""
