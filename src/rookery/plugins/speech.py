"""What is said in sessions, and the tools that run there: told once each, when it is whole."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from rookery.agents.message_events import MessageGone, MessageSeen, PartSeen
from rookery.agents.records import MessageInfo, Part
from rookery.plugins.events import Event, MessageEvent, ToolEvent
from rookery.sessions.shown import cut, tool_run, words

# So many messages and tools that are not over are remembered, and so many that are.
_MOST = 2000
_ENDED = ("completed", "error")

_read_part = msgspec.json.Decoder(Part)


@dataclass
class _Message:
    session: str
    info: MessageInfo | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])
    told: bool = False


class Speech:
    def __init__(self) -> None:
        self._messages: OrderedDict[str, _Message] = OrderedDict()
        # Of each run of a tool, whether its end was told.
        self._tools: OrderedDict[str, tuple[str, bool]] = OrderedDict()

    def hear(self, event: MessageSeen | MessageGone | PartSeen) -> Iterator[Event]:
        match event:
            case MessageSeen(session, info):
                message = self._message(session, info.id)
                message.info = info
                yield from self._whole(message)
            case MessageGone(_, id_):
                self._messages.pop(id_, None)
            case PartSeen(session, raw):
                yield from self.part(session, raw)

    def part(self, session: str, raw: msgspec.Raw, origin: str | None = None) -> Iterator[Event]:
        """With an `origin`, which only tools have, it is that of a hidden child of the session."""
        try:
            part = _read_part.decode(raw)
        except ValueError:
            return
        if part.type == "text" and origin is None:
            message = self._message(session, part.message)
            if not message.told:
                message.texts[part.id] = cut(part.text or "")
                yield from self._whole(message)
        elif part.type == "tool" and part.state is not None:
            yield from self._tool(session, part, part.state.status, origin)

    def forget(self, session: str) -> None:
        for id_ in [id_ for id_, one in self._messages.items() if one.session == session]:
            del self._messages[id_]
        for id_ in [id_ for id_, (own, _) in self._tools.items() if own == session]:
            del self._tools[id_]

    def _message(self, session: str, id_: str) -> _Message:
        found = self._messages.setdefault(id_, _Message(session))
        while len(self._messages) > _MOST:
            self._messages.popitem(last=False)
        return found

    def _whole(self, message: _Message) -> Iterator[Event]:
        """A person's is with its first text, the assistant's when OpenCode says so."""
        info = message.info
        if info is None or message.told:
            return
        if (info.role == "user" and message.texts) or info.time.completed is not None or info.error is not None:
            message.told = True
            content = "\n".join(filter(None, message.texts.values()))
            message.texts.clear()
            yield MessageEvent(
                hook="message.added",
                session_id=message.session,
                message_id=info.id,
                role=info.role,
                content=content,
                error=words(info.error) if info.error is not None else None,
            )

    def _tool(self, session: str, part: Part, status: str, origin: str | None) -> Iterator[Event]:
        known = self._tools.get(part.id)
        ended = status in _ENDED
        if status == "pending" or (known is not None and (known[1] or not ended)):
            return
        self._tools[part.id] = session, ended
        while len(self._tools) > _MOST:
            self._tools.popitem(last=False)
        run = tool_run(part, session, origin)
        if known is None:
            yield ToolEvent(hook="tool.started", session_id=session, run=run)
        if ended:
            yield ToolEvent(hook="tool.finished", session_id=session, run=run)
