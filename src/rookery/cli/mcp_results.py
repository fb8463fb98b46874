"""The result of a tool for people: text as text, the rest saved or named. A server may have put anything into it."""

import json
from typing import Any, cast

from rookery.cli import output
from rookery.cli.visible import visible


def print_result(result: dict[str, Any], folder: str | None) -> None:
    contents = result.get("content")
    listed = cast("list[Any]", contents) if isinstance(contents, list) else []
    for number, content in enumerate(listed, 1):
        found = as_object(content)
        _print(found, number, folder) if _fits(found) else _print_json(content)
    if not listed and "structuredContent" in result:
        _print_json(result["structuredContent"])


def narrate(message: dict[str, Any]) -> None:
    """What a server says before its answer."""
    params = as_object(message.get("params"))
    if message.get("method") == "notifications/progress":
        total = f" of {params['total']}" if "total" in params else ""
        output.narrate(visible(f"{params.get('progress')}{total} {params.get('message') or ''}".rstrip()))
    elif message.get("method") == "notifications/message":
        output.narrate(visible(f"{params.get('level')}: {params.get('data')}"))


def _fits(content: dict[str, Any]) -> bool:
    """Whether it has what its type promises."""
    resource = as_object(content.get("resource"))
    match content.get("type"):
        case "text":
            return isinstance(content.get("text"), str)
        case "image" | "audio":
            return isinstance(content.get("data"), str)
        case "resource":
            return isinstance(resource.get("text"), str) or isinstance(resource.get("blob"), str)
        case "resource_link":
            return isinstance(content.get("uri"), str)
        case _:
            return False


def _print(content: dict[str, Any], number: int, folder: str | None) -> None:
    inner = as_object(content.get("resource")) if content["type"] == "resource" else content
    if isinstance(inner.get("text"), str):
        output.answer(output.foreign(inner["text"]))
    elif content["type"] == "resource_link":
        output.answer(output.foreign(f"{content.get('name') or ''} {content['uri']}".strip()))
    else:
        _keep(str(inner.get("blob") or inner.get("data")), str(inner.get("mimeType") or ""), number, folder)


def _print_json(value: Any) -> None:
    output.answer_json(json.dumps(value, ensure_ascii=False).encode())


def _keep(data: str, kind: str, number: int, folder: str | None) -> None:
    """Save what is no text, or say that it is there. The name is ours: no server chooses what is written where."""
    import base64
    import mimetypes
    import os

    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        output.narrate(f"content {number} is not the base64 that it is to be")
        return
    if folder is None:
        output.answer(f"[{visible(kind) or 'bytes'}, {len(content):,} bytes; --save DIR keeps it]")
        return
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - pathlib costs as much as click
    path = os.path.join(folder, f"{number}{mimetypes.guess_extension(kind) or '.bin'}")  # noqa: PTH118
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(content)
    output.answer(path)


def as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
