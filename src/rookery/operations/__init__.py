"""Every operation of Rookery, declared once: REST, MCP, Socket.IO, the SDK and the reference are made from it."""
