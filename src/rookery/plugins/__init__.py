"""Hooks for third parties; built-in features are plugins too. Plugin authors import everything they need from here."""

from rookery.plugins.api import (
    AskEvent,
    CallEvent,
    Event,
    House,
    MessageEvent,
    Plugin,
    SessionEvent,
    ToastEvent,
    ToolEvent,
)
from rookery.system.errors import RookeryError

__all__ = [
    "AskEvent",
    "CallEvent",
    "Event",
    "House",
    "MessageEvent",
    "Plugin",
    "RookeryError",
    "SessionEvent",
    "ToastEvent",
    "ToolEvent",
]
