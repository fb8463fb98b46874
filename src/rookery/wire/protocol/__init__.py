"""The parts of MCP that both roles share: messages, framing, revisions, routing headers and providers."""
