"""Rookery for Python programs: the running daemon as objects, over its Unix socket."""

from rookery.face.connecting import Rookery, connect
from rookery.face.hub import Tool
from rookery.face.projects import Project
from rookery.face.results import Attachment, Result
from rookery.face.session import Session
from rookery.face.workspaces import Workspace
from rookery.system.errors import RookeryError

__all__ = ["Attachment", "Project", "Result", "Rookery", "RookeryError", "Session", "Tool", "Workspace", "connect"]
