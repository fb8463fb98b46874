"""Python SDK: the running daemon as objects, over its Unix socket."""

from rookery.sdk.client import Rookery, connect
from rookery.sdk.hub import Tool
from rookery.sdk.projects import Project
from rookery.sdk.results import Attachment, Result
from rookery.sdk.sessions import Session
from rookery.sdk.workspaces import Workspace
from rookery.system.errors import RookeryError

__all__ = ["Attachment", "Project", "Result", "Rookery", "RookeryError", "Session", "Tool", "Workspace", "connect"]
