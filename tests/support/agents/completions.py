"""Requests for completions as an agent makes them, and an agent that sends them one after the other."""

import json
from collections.abc import Generator, Sequence
from typing import Any

from rookery.testing.player import Player, Reply
from rookery.testing.request import ModelRequest

Message = dict[str, Any]
TOOLS = ("bash", "read")


def body(messages: Sequence[Message], tools: Sequence[str] = TOOLS, **more: Any) -> dict[str, Any]:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    return {"model": "scripted", "messages": list(messages), **({"tools": offered} if tools else {}), **more}


def asked(
    messages: Sequence[Message], session: str | None = "ses_1", tools: Sequence[str] = TOOLS, **more: Any
) -> ModelRequest:
    headers = {"x-session-id": session} if session else {}
    return ModelRequest.parse(json.dumps(body(messages, tools, **more)).encode(), headers)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def called(*names: str) -> Message:
    """Return a reply that calls tools."""
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": name}} for n, name in enumerate(names)]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def result(text: str) -> Message:
    return {"role": "tool", "tool_call_id": "c0", "content": text}


class CompletionAgent:
    """Answers the calls of every reply with `<tool> did <arguments>`, and sends requests until the turn is over."""

    def __init__(self, session: str | None) -> None:
        self.session = session
        self.messages: list[Message] = [{"role": "system", "content": "You are an agent."}]
        self.replies: list[Reply] = []

    def turn(self, text: str) -> Generator[ModelRequest, Reply]:
        """Play one turn: yield each request, and receive its reply."""
        self.messages.append(user(text))
        cut_off: list[Message] = []
        while True:
            reply = yield asked(self.messages, self.session)
            self.replies.append(reply)
            if reply.step.error is not None:
                continue
            if reply.step.disconnect:
                # As OpenCode has it: asked again without it, then kept in front of what came instead.
                cut_off = [said("")]
                continue
            self.messages += cut_off
            cut_off = []
            self.messages.append(called(*(call.call for call in reply.calls)) if reply.calls else said(reply.text))
            if not reply.calls:
                return
            self.messages += [result(f"{call.call} did {json.dumps(call.arguments)}") for call in reply.calls]

    def turns(self, *texts: str) -> Generator[ModelRequest, Reply]:
        for text in texts:
            yield from self.turn(text)

    def run(self, player: Player, *texts: str) -> list[Reply]:
        """Play whole turns, and return all replies so far."""
        going = self.turns(*texts)
        request = next(going)
        while True:
            try:
                request = going.send(player.reply_to(request))
            except StopIteration:
                return self.replies
