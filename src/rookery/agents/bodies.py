"""What is sent to OpenCode, written from what a caller gives."""

import re
from typing import Any

from rookery.system.errors import RookeryError
from rookery.system.ids import new_id

_ASK = re.compile(r"(?:per|que)_[0-9A-Za-z_-]+")


def given(**values: Any) -> dict[str, Any]:
    """Without what was left out."""
    return {name: value for name, value in values.items() if value is not None}


def turn(text: str, agent: str | None, model: str | None, id_: str | None = None) -> dict[str, Any]:
    """A message of a person, with an id that was chosen for it or with one of OpenCode's choice."""
    more = given(agent=agent, model=model_as(model, "modelID"), messageID=id_)
    return {"parts": [{"type": "text", "text": text}], **more}


def message_id(milliseconds: float) -> str:
    """An id as OpenCode makes them: they are in the order of time, and OpenCode relies on that."""
    return f"msg_{(int(milliseconds) << 12) & (2**48 - 1):012x}{new_id()[:14]}"


def model_as(model: str | None, name_of_id: str) -> dict[str, str] | None:
    """`provider/model` as the object that OpenCode wants; it calls the model's id differently in different places."""
    if model is None:
        return None
    provider, slash, name = model.partition("/")
    if not (provider and slash and name):
        raise RookeryError("invalid-input", f"{model!r} is not the name of a model", "write it as provider/model")
    return {"providerID": provider, name_of_id: name}


def ask_path(kind: str, id_: str, what: str) -> str:
    if not _ASK.fullmatch(id_):
        raise RookeryError("invalid-input", f"there is no open ask {id_!r}", "list the open ones, and name one of them")
    return f"/{kind}/{id_}/{what}"
