"""Read a script from a TOML or JSON file; an error names the file and the position."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain
from rookery.testing.script import Script

_LARGEST = 16 * 2**20
_REMEDY = "see docs/guide/scripted-model.md for the format of a script"


def load_script(path: Path) -> Script:
    """Return the script in a file, which is JSON if its name ends in .json and TOML otherwise."""
    try:
        text = read_plain(path, _LARGEST).decode("utf-8")
    except FileNotFoundError:
        raise RookeryError("script-not-found", f"there is no script {path}", "give the path of a script") from None
    except OSError as error:
        raise _invalid_script(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _invalid_script(f"{path} is not UTF-8: byte {error.start} is invalid") from None
    try:
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise _invalid_script(f"{path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    return parse_script(data, str(path))


def parse_script(data: Any, source: str = "the script") -> Script:
    """Return a script from plain data.

    If turns or steps are at the top level, they are one conversation for every session.
    """
    for inner, outer in (("step", "turn"), ("turn", "conversation")):
        if isinstance(data, Mapping) and inner in data and outer not in data:
            data = {outer: [cast(Any, data)]}
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        message, _, json_path = str(error).partition(" - at `$")
        location = f"{source}, {_describe_path(json_path.rstrip('`'))}" if json_path else source
        raise _invalid_script(f"{location}: {message[:1].lower()}{message[1:]}") from None


def _describe_path(place: str) -> str:
    """Convert `.conversation[0].turn[1].step[2].say` to words, counting from 1: conversation 1, turn 2, step 3, say."""
    parts = re.findall(r"\.(\w+)|\[(\d+)\]|\[(\.\.\.)\]", place)
    words: list[str] = []
    for name, number, _ in parts:
        if name:
            words.append(name)
        elif number and words:
            words[-1] += f" {int(number) + 1}"
    return ", ".join(words)


def _invalid_script(message: str) -> RookeryError:
    """Return the error for a script that cannot be used."""
    return RookeryError("invalid-input", message, _REMEDY)
