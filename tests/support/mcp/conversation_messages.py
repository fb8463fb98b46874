"""Messages for playbooks, and placeholders that match more than one value."""

from typing import Any, cast

from tests.support.mcp.line_client import enveloped, message


class Placeholder:
    """Equals the first value that it is compared with, and later only that value, which it is also sent as."""

    value: Any = ...

    def __eq__(self, other: object) -> bool:
        self.value = other if self.value is ... else self.value
        return self.value == other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "<anything>" if self.value is ... else f"<{self.value!r}>"


class Having(dict[str, Any]):
    """Equals an object with these members, and possibly others."""

    def __eq__(self, other: object) -> bool:
        found = cast(dict[str, Any], other) if isinstance(other, dict) else None
        return found is not None and all(key in found and found[key] == value for key, value in self.items())

    __hash__ = None


class Saying(str):
    """Equals a text that contains this one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self) in str(other)

    __hash__ = str.__hash__


# ---- what a client says


def call(id_: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of the handshake era; its progress token is its own id."""
    return message("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": id_}}, id_)


def modern_call(id_: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", enveloped({"name": tool, "arguments": arguments}, progressToken=id_), id_)


def cancel(id_: Any) -> dict[str, Any]:
    return message("notifications/cancelled", {"requestId": id_})


def answer(id_: Any, found: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": found}


def refusal(id_: Any, code: int, words: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": words, **more}}


# ---- what it hears


def result(id_: Any, **members: Any) -> dict[str, Any]:
    return answer(id_, Having(members))


def text(id_: Any, words: str) -> dict[str, Any]:
    """Return the result of a tool with text content."""
    return result(id_, content=[{"type": "text", "text": words}])


def error(id_: Any, code: int, words: str = "", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": Having(code=code, message=Saying(words), **more)}


def told(method: str, **params: Any) -> dict[str, Any]:
    return message(f"notifications/{method}", Having(params))


def asked(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return message(method, Having(params), id_)
