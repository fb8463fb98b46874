"""`mcp.lock`: the committed set of pins, with the definitions and packages of the servers."""
