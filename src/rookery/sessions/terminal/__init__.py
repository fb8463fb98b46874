"""Terminals and screens of sessions."""
