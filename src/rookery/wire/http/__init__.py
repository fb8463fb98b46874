"""The HTTP server: sockets, connections, limits, authentication and exchanges for an ASGI app."""
