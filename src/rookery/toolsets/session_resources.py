"""Sessions and their messages as resources."""

from rookery.toolsets.resources import Resource
from rookery.toolsets.session_calls import SessionCalls

_JSON = "application/json"


def session_resources(calls: SessionCalls) -> list[Resource]:
    return [
        Resource(
            "session://{sessionId}",
            "Session State",
            "Current state of an OpenCode session",
            calls.read_session,
            _JSON,
            complete=calls.complete,
        ),
        Resource(
            "messages://{sessionId}",
            "Session Messages",
            "All messages in a session",
            calls.read_messages,
            _JSON,
            complete=calls.complete,
        ),
    ]
