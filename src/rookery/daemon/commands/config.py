"""`rookery config`: show, get, set, path."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from rookery.cli import output
from rookery.daemon.settings import layers
from rookery.daemon.settings.layers import SettingKey, list_settings
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure, report_failure
from rookery.system.causes import describe_error
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.fs.atomic import write_atomic
from rookery.system.process.leftovers import require_user


def run_config(action: str, key: str, value: str, *, as_json: bool, in_project: bool) -> int:
    try:
        layered = layers.load_layers(
            paths.config_folder(), project=layers.find_checkout(Path.cwd()), environment=os.environ
        )
        if action == "show":
            _show(layered, as_json)
        elif action == "get":
            _get(layered, key, as_json)
        elif action == "set":
            _set(key, value, in_project)
        else:
            _path(layered, as_json)
    except RookeryError as error:
        return report_failure(Failure(error.code, error.message, error.remedy))
    except Failure as failure:
        return report_failure(failure)
    return 0


def _show(layered: layers.LayeredSettings, as_json: bool) -> None:
    settings_by_key = list_settings()
    if as_json:
        settings = [
            {
                "key": key,
                "value": layered.values[key],
                "source": layered.sources[key],
                "default": setting.default,
                "variable": setting.variable,
                "description": setting.text,
            }
            for key, setting in settings_by_key.items()
        ]
        problems = [
            {"source": problem.source, "message": problem.message, "remedy": problem.remedy}
            for problem in layered.problems
        ]
        output.write(json.dumps({"version": 1, "settings": settings, "problems": problems}))
        return
    rows = [[key, _literal(layered.values[key]), layered.sources[key]] for key in settings_by_key]
    heads = [output.Column("SETTING", output.VITAL, None), output.Column("VALUE", output.VITAL, 16, wraps=True)]
    output.write(output.format_table(rows, [*heads, output.Column("SOURCE", output.MINOR, 12)]))
    for problem in layered.problems:
        output.write_note(output.format_labelled("problem: ", str(problem), style="yellow", stream=sys.stderr))


def _get(layered: layers.LayeredSettings, key: str, as_json: bool) -> None:
    setting = _require_setting(key)
    value = layered.values[setting.key]
    if as_json:
        output.write(json.dumps({"key": key, "value": value, "source": layered.sources[key]}))
    else:
        output.write(value if isinstance(value, str) else _literal(value))


def _set(key: str, text: str, in_project: bool) -> None:
    require_user(paths.state_folder(), "changing settings")
    setting = _require_setting(key)
    value = layers.parse_value(setting, text, textual=True)
    path = layers.user_file(paths.config_folder())
    if in_project:
        project = layers.find_checkout(Path.cwd())
        if project is None:
            raise Failure("project-not-found", "the current folder is in no git repository", "leave --project out")
        if not setting.allowed_in_project:
            raise Failure("invalid-input", f"{key} cannot be set by a project, only by its user", "leave --project out")
        path = layers.project_file(project)
    try:
        text = layers.read_settings_file(path, of_project=in_project)
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            "invalid-settings", f"{path} cannot be read: {describe_error(error)}", "repair or remove it first"
        ) from None
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.ParseError as error:
        raise Failure("invalid-settings", f"{path} cannot be read: {error}", "repair or remove it first") from None
    section, _, name = key.rpartition(".")
    table: Any = document.setdefault(section, tomlkit.table()) if section else document
    if not hasattr(table, "setdefault"):
        raise Failure("invalid-settings", f"{section} is not a section in {path}", "repair or remove it first")
    table[name] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, tomlkit.dumps(document).encode())
    output.write_note(f"{key} = {_literal(value)} in {path}")
    layered = layers.load_layers(
        paths.config_folder(), project=layers.find_checkout(Path.cwd()), environment=os.environ
    )
    if layered.sources[key] != str(path):
        output.write_note(f"but {layered.sources[key]} takes precedence and sets {_literal(layered.values[key])}")
    elif outcome := _reload_daemon(key):
        output.write_note(outcome)


def _reload_daemon(key: str) -> str:
    """Ask a running daemon to reload its settings. Return a sentence about the result; empty if no daemon runs."""
    running = connection.connect()
    if running is None:
        return ""
    try:
        reply = json.loads(connection.send_request(running, "POST", "/api/daemon/reload", {}))
    except Failure as failure:
        return f"the running daemon could not apply it: {failure.message}"
    if key in reply["applied"]:
        return "the running daemon has applied it"
    return "it takes effect at the next start of the daemon" if key in reply["needs_restart"] else ""


def _path(layered: layers.LayeredSettings, as_json: bool) -> None:
    if as_json:
        output.write(json.dumps({"files": [{"path": str(path), "exists": path.exists()} for path in layered.files]}))
        return
    for path in layered.files:
        output.write(f"{path}{'' if path.exists() else '  (does not exist)'}")


def _require_setting(key: str) -> SettingKey:
    settings = list_settings()
    if key not in settings:
        raise Failure("invalid-input", f"there is no setting {key}", layers.suggest_key(key, settings))
    return settings[key]


def _literal(value: Any) -> str:
    return json.dumps(value)
