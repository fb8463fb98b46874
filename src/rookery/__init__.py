"""Rookery runs many coding agents side by side on one machine, behind one MCP control plane."""

__version__ = "0.1.0"

# Not imported from typing: importing this package stays cheap, and the SDK is loaded on first use.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookery.sdk import Project, Result, Rookery, RookeryError, Session, Tool, Workspace, connect
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module("rookery.sdk"), name)


__all__ = ["Project", "Result", "Rookery", "RookeryError", "Session", "Tool", "Workspace", "__version__", "connect"]
