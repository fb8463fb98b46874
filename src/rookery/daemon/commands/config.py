"""`rookery config`: show, get, set, path."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from rookery.cli import link, output
from rookery.cli.failure import Failure, report
from rookery.daemon import layers
from rookery.daemon.known import Known, known_settings
from rookery.system import places
from rookery.system.errors import RookeryError
from rookery.system.files import write_atomic


def run_config(action: str, key: str, value: str, *, as_json: bool, in_project: bool) -> int:
    try:
        layered = layers.load(places.config_folder(), project=layers.checkout_of(Path.cwd()), environment=os.environ)
        if action == "show":
            _show(layered, as_json)
        elif action == "get":
            _get(layered, key, as_json)
        elif action == "set":
            _set(key, value, in_project)
        else:
            _path(layered, as_json)
    except RookeryError as error:
        return report(Failure(error.code, error.message, error.remedy))
    except Failure as failure:
        return report(failure)
    return 0


def _show(layered: layers.Layered, as_json: bool) -> None:
    known = known_settings()
    if as_json:
        settings = [
            {
                "key": key,
                "value": layered.values[key],
                "source": layered.sources[key],
                "default": one.default,
                "variable": one.variable,
                "description": one.text,
            }
            for key, one in known.items()
        ]
        problems = [{"source": one.source, "message": one.message, "remedy": one.remedy} for one in layered.problems]
        output.answer(json.dumps({"version": 1, "settings": settings, "problems": problems}))
        return
    rows = [[key, _literal(layered.values[key]), layered.sources[key]] for key in known]
    output.answer(output.table(rows, ["SETTING", "VALUE", "SOURCE"]))
    for problem in layered.problems:
        output.narrate(output.paint(f"problem: {problem}", "yellow", sys.stderr))


def _get(layered: layers.Layered, key: str, as_json: bool) -> None:
    known = _known(key)
    value = layered.values[known.key]
    if as_json:
        output.answer(json.dumps({"key": key, "value": value, "source": layered.sources[key]}))
    else:
        output.answer(value if isinstance(value, str) else _literal(value))


def _set(key: str, text: str, in_project: bool) -> None:
    known = _known(key)
    value = layers.parse(known, text, textual=True)
    path = layers.user_file(places.config_folder())
    if in_project:
        project = layers.checkout_of(Path.cwd())
        if project is None:
            raise Failure("project-not-found", "the current folder is in no git repository", "leave --project out")
        if not known.project:
            raise Failure("invalid-input", f"{key} cannot be set by a project, only by its user", "leave --project out")
        path = layers.project_file(project)
    try:
        text = layers.read_file(path, of_project=in_project)
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise Failure("invalid-settings", f"{path} cannot be read: {error}", "mend or remove it first") from None
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.ParseError as error:
        raise Failure("invalid-settings", f"{path} cannot be read: {error}", "mend or remove it first") from None
    section, _, name = key.rpartition(".")
    table: Any = document.setdefault(section, tomlkit.table()) if section else document
    if not hasattr(table, "setdefault"):
        raise Failure("invalid-settings", f"{section} is not a section in {path}", "mend or remove it first")
    table[name] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, tomlkit.dumps(document).encode())
    output.narrate(f"{key} = {_literal(value)} in {path}")
    now = layers.load(places.config_folder(), project=layers.checkout_of(Path.cwd()), environment=os.environ)
    if now.sources[key] != str(path):
        output.narrate(f"but {now.sources[key]} comes after it and gives {_literal(now.values[key])}")
    elif said := _take_over(key):
        output.narrate(said)


def _take_over(key: str) -> str:
    """Ask a running daemon to read the settings anew; what it said, in words."""
    running = link.connect()
    if running is None:
        return ""
    try:
        told = json.loads(link.exchange(running, "POST", "/api/daemon/reload", {}))
    except Failure as failure:
        return f"the running daemon could not take it over: {failure.message}"
    if key in told["applied"]:
        return "the running daemon has taken it over"
    return "it counts from the next start of the daemon" if key in told["needs_restart"] else ""


def _path(layered: layers.Layered, as_json: bool) -> None:
    if as_json:
        output.answer(json.dumps({"files": [{"path": str(p), "exists": p.exists()} for p in layered.files]}))
        return
    for path in layered.files:
        output.answer(f"{path}{'' if path.exists() else '  (not there)'}")


def _known(key: str) -> Known:
    known = known_settings()
    if key not in known:
        raise Failure("invalid-input", f"there is no setting {key}", layers.nearest(key, known))
    return known[key]


def _literal(value: Any) -> str:
    return json.dumps(value)
