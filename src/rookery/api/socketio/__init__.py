"""The Socket.IO interface."""
