"""Signing in to servers that want to know who asks: OAuth, by the official SDK, in a process of its own."""
