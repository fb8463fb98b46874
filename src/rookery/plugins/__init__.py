"""Hooks for third parties; what is built in is a plugin too. What an author needs can be imported from here."""

from rookery.plugins.events import (
    AskEvent,
    CallEvent,
    Event,
    MessageEvent,
    SessionEvent,
    ToastEvent,
    ToolEvent,
)
from rookery.plugins.house import House
from rookery.plugins.plugin import Plugin
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
