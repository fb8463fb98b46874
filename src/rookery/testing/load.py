"""Reads a script from a file, TOML or JSON; an error names the file and the place in it."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain
from rookery.testing.script import Script

_LARGEST = 16 * 2**20
_REMEDY = "see docs/guide/scripted-model.md for what a script may hold"


def load_script(path: Path) -> Script:
    """The script in a file, which is taken for JSON if its name ends in .json and for TOML otherwise."""
    try:
        text = read_plain(path, _LARGEST).decode("utf-8")
    except FileNotFoundError:
        raise RookeryError("script-not-found", f"there is no script {path}", "give the path of a script") from None
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _unusable(f"{path} is not UTF-8: byte {error.start} is none") from None
    try:
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise _unusable(f"{path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    return script_of(data, str(path))


def script_of(data: Any, source: str = "the script") -> Script:
    """A script from plain data. One with turns or steps on top has one conversation, for every session."""
    for inner, outer in (("step", "turn"), ("turn", "conversation")):
        if isinstance(data, Mapping) and inner in data and outer not in data:
            data = {outer: [cast(Any, data)]}
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        where = f"{source}, {_words(place.rstrip('`'))}" if place else source
        raise _unusable(f"{where}: {message[:1].lower()}{message[1:]}") from None


def _words(place: str) -> str:
    """`.conversation[0].turn[1].step[2].say` as people count: conversation 1, turn 2, step 3, say."""
    parts = re.findall(r"\.(\w+)|\[(\d+)\]|\[(\.\.\.)\]", place)
    words: list[str] = []
    for name, number, _ in parts:
        if name:
            words.append(name)
        elif number and words:
            words[-1] += f" {int(number) + 1}"
    return ", ".join(words)


def _unusable(message: str) -> RookeryError:
    return RookeryError("invalid-input", message, _REMEDY)
