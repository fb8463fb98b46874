"""Hooks for third parties; what is built in is a plugin too."""
