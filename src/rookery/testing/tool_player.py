"""Answers for a model that plays the tool calls it was given: the call, and after its result the end."""

from rookery.sessions.executing_plays import Plays
from rookery.testing.asked import Asked
from rookery.testing.place import Unforeseen
from rookery.testing.player import Reply, housekeeping
from rookery.testing.script import Call, Step, Usage

# It costs nothing, and so no session ever becomes too long for it.
_STEP = Step(say="", usage=Usage(0))
_NOTHING = (
    "this model only plays tools that Rookery was asked to run; choose another model for this session, or sign in to a "
    "provider: opencode auth login"
)


class ToolPlayer:
    def __init__(self, plays: Plays) -> None:
        self._plays = plays

    def answer(self, asked: Asked) -> Reply:
        """The reply to a request; `Unforeseen` if there is nothing to play in its session for who asks."""
        if kind := asked.housekeeping:
            return housekeeping(kind, asked)
        play = self._plays.of(asked.session_header, asked.key)
        if play is None:
            raise Unforeseen(_NOTHING)
        if asked.replies:
            play.end()
        elif play.begin(asked.tools) and play.tool is not None:
            return Reply("", (Call(play.tool, dict(play.arguments)),), _STEP, ids=(play.id,))
        return Reply("", (), _STEP)
