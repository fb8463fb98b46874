"""Sessions of agents: messages, waits, toasts, asks, screens and tool runs."""
