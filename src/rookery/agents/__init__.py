"""Agents: one OpenCode server per workspace, installed, configured, started, watched and restarted."""
