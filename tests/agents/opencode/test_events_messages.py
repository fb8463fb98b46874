"""OpenCode's events about messages and toasts."""

import json
from typing import Any

from rookery.agents.opencode.events import (
    MessageRemoved,
    MessageUpdated,
    PartDelta,
    PartRemoved,
    PartUpdated,
    ToastShown,
    decode_event,
)


def event(type_: str, **properties: Any) -> bytes:
    return json.dumps({"id": "evt_1", "type": type_, "properties": properties}, ensure_ascii=False).encode()


def test_events_about_messages_and_toasts_are_decoded() -> None:
    info = {"id": "m", "role": "assistant", "sessionID": "s", "parentID": "u", "time": {"created": 1}, "cost": 0}
    seen = decode_event(event("message.updated", sessionID="s", info=info))[1]
    assert isinstance(seen, MessageUpdated)
    assert (seen.session, seen.info.id, seen.info.parent) == ("s", "m", "u")
    part = {"id": "p", "messageID": "m", "type": "text", "text": "日本"}
    told = decode_event(event("message.part.updated", sessionID="s", part=part, time=1))[1]
    assert isinstance(told, PartUpdated)
    assert json.loads(bytes(told.part)) == part
    place = {"sessionID": "s", "messageID": "m"}
    assert decode_event(event("message.part.delta", **place, partID="p", field="text", delta="more ")) == (
        "message.part.delta",
        PartDelta("s", "m", "p", "text", "more "),
    )
    assert decode_event(event("message.part.removed", **place, partID="p"))[1] == PartRemoved("s", "m", "p")
    assert decode_event(event("message.removed", **place))[1] == MessageRemoved("s", "m")
    toast = {"message": "hi", "variant": "warning", "title": "T", "duration": 900}
    assert decode_event(event("tui.toast.show", **toast))[1] == ToastShown("hi", "T", "warning", 900)
    assert decode_event(event("tui.toast.show", message="hi", variant="info"))[1] == ToastShown(
        "hi", None, "info", 5000
    )
