"""A reply as OpenAI's protocol has it: in chunks of a stream, as a whole, or as an error."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from rookery.testing.asked import Asked
from rookery.testing.player import Reply

DONE = b"data: [DONE]\n\n"
# About as many bytes as there are in a token.
_BYTES = 4


@dataclass(frozen=True)
class Framed:
    """One reply to one request. All ids in it follow from the request, so that it is the same every time."""

    reply: Reply
    asked: Asked
    created: int

    def stream(self) -> Iterator[bytes]:
        """The events of the stream, each a write of its own; the end of one that is cut off never comes."""
        yield self._event({"role": "assistant", "content": ""})
        for piece in re.findall(r"\S+\s*|\s+", self.reply.text):
            yield self._event({"content": piece})
        for index, call in enumerate(self._calls()):
            function = call["function"]
            yield self._event({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
            part = {"index": index, "function": {"arguments": function["arguments"]}}
            yield self._event({"tool_calls": [part]})
        if not self.reply.step.disconnect:
            yield self._event({}, self._finish, usage=self._usage())
            yield DONE

    def whole(self) -> bytes:
        calls = self._calls()
        message = {"role": "assistant", "content": self.reply.text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return msgspec.json.encode(self._frame("chat.completion", choice) | {"usage": self._usage()})

    @property
    def _finish(self) -> str:
        return "tool_calls" if self.reply.calls else "stop"

    def _event(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: %b\n\n" % msgspec.json.encode(self._frame("chat.completion.chunk", choice) | more)

    def _frame(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        name = f"chatcmpl-{len(self.asked.messages)}"
        made = {"id": name, "object": kind, "created": self.created, "model": self.asked.body.model}
        return made | {"choices": [choice]}

    def _calls(self) -> list[dict[str, Any]]:
        turn, calls = len(self.asked.messages), self.reply.calls
        ids = self.reply.ids or [f"call_{turn}_{number}" for number in range(1, len(calls) + 1)]
        return [
            {
                "id": id_,
                "type": "function",
                "function": {"name": call.call, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for id_, call in zip(ids, calls, strict=True)
        ]

    def _usage(self) -> dict[str, int]:
        given = self.reply.step.usage
        said = len(self.reply.text) + sum(len(call["function"]["arguments"]) for call in self._calls())
        read, wrote = (
            (given.input, given.output) if given else (len(bytes(self.asked.raw)) // _BYTES, said // _BYTES + 1)
        )
        return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def error_body(status: int, message: str) -> bytes:
    """An error in the words by which clients tell whether to try again."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error")
    return msgspec.json.encode(
        {"error": {"message": message, "type": kind if status < 500 else "server_error", "param": None, "code": None}}
    )
