"""Driving a session of an agent: messages, waits, toasts, asks and the tools that ran."""
