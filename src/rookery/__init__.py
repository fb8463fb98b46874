"""Rookery runs many coding agents side by side on one machine, behind one MCP control plane."""

__version__ = "0.1.0"
__all__ = ["__version__"]
