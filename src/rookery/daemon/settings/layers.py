"""Reads settings from defaults < user file < project file < environment < flags, with the source of each value.

They are read when the daemon starts, and again while it runs.
"""

import difflib
import logging
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from rookery.daemon.options import Options
from rookery.daemon.settings.schema import Settings
from rookery.guard.digests import FILE_VARIABLE, VARIABLE
from rookery.system import log
from rookery.system.bus import Bus
from rookery.system.causes import describe_error
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.fs.atomic import read_beneath, read_plain

logger = logging.getLogger("rookery.daemon")

# Variables with the prefix ROOKERY_ that are no settings: those of the user, of shells that Rookery opened, and those
# that `rookery model env` prints.
_OTHER_VARIABLES = frozenset(
    {
        *("ROOKERY_HOME", "ROOKERY_SPAWN", "ROOKERY_TOKEN", "ROOKERY_FAULT", VARIABLE, FILE_VARIABLE),
        *("ROOKERY_WORKSPACE_PATH", "ROOKERY_WORKSPACE_NAME", "ROOKERY_WORKSPACE_HEADER", "ROOKERY_PROJECT_PATH"),
        *("ROOKERY_MCP_PORT", "ROOKERY_PORT", "ROOKERY_PORTS", "ROOKERY_ATTENTION"),
        *("ROOKERY_MODEL_KEY", "ROOKERY_MODEL_PID", "ROOKERY_MODEL_URL"),
    }
)
_LARGEST_FILE = 1_000_000


@dataclass(frozen=True)
class SettingKey:
    """One setting, as `rookery config` and the docs list it."""

    key: str
    type: Any
    default: Any
    text: str
    allowed_in_project: bool
    is_live: bool

    @property
    def is_table(self) -> bool:
        """Return whether the setting is a table whose keys are names of the user's choice."""
        return get_origin(get_args(self.type)[0]) is dict

    @property
    def accepts(self) -> str:
        """Return a description of the accepted values."""
        kind, *metas = get_args(self.type)
        if get_origin(kind) is Literal:
            return "one of " + ", ".join(get_args(kind))
        if kind is str:
            # If only some texts are valid, the examples show which.
            examples = next((meta.examples for meta in metas if meta.examples), None)
            return f"text such as {', '.join(examples)}" if examples else "text"
        if self.is_table:
            return "a table with a table for each name"
        least = next((meta.ge if meta.ge is not None else meta.gt for meta in metas if meta.le is not None), None)
        most = next((meta.le for meta in metas if meta.le is not None), None)
        number = "a whole number" if kind is int else "a number"
        return f"{number} from {least} to {most}" if kind is int else f"{number} above {least}, up to {most}"

    @property
    def variable(self) -> str:
        return "ROOKERY_" + self.key.upper().replace(".", "_")


def list_settings() -> dict[str, SettingKey]:
    return {setting.key: setting for setting in _walk(Settings, Settings(), "")}


def _walk(kind: type, defaults: Any, prefix: str) -> Iterator[SettingKey]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        default = getattr(defaults, name)
        if get_origin(hint) is not Annotated:
            yield from _walk(hint, default, f"{prefix}{name}.")
            continue
        text = next(meta.description for meta in hint.__metadata__ if meta.description)
        extra: dict[str, bool] = next((meta.extra for meta in hint.__metadata__ if meta.extra), None) or {}
        yield SettingKey(prefix + name, hint, default, text, extra.get("project", False), extra.get("live", False))


@dataclass(frozen=True)
class SettingProblem:
    """An entry of a source that is not used; a `fatal` one prevents the daemon from starting."""

    source: str
    message: str
    remedy: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.source}: {self.message} ({self.remedy})" if self.remedy else f"{self.source}: {self.message}"


@dataclass
class LayeredSettings:
    """The effective settings, and the source of each."""

    values: dict[str, Any]
    sources: dict[str, str]
    files: list[Path]
    problems: list[SettingProblem] = field(default_factory=list[SettingProblem])

    def settings(self) -> Settings:
        """Return the typed settings; raise an error that names all fatal problems."""
        fatal = [problem for problem in self.problems if problem.fatal]
        if fatal:
            code = "invalid-input" if all(problem.source == "flag" for problem in fatal) else "invalid-settings"
            raise RookeryError(code, "; ".join(map(str, fatal)), "see: rookery config show")
        nested: dict[str, Any] = {}
        for key, value in self.values.items():
            section, _, name = key.rpartition(".")
            (nested.setdefault(section, {}) if section else nested)[name] = value
        return msgspec.convert(nested, Settings)


def user_file(config_folder: Path) -> Path:
    return config_folder / "config.toml"


def project_file(project: Path) -> Path:
    return project / ".rookery" / "config.toml"


def find_checkout(folder: Path) -> Path | None:
    """Return the checkout that contains a folder, found without running git."""
    try:
        return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    except OSError:
        return None


def load_layers(
    config_folder: Path,
    *,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[tuple[str, str]] = (),
) -> LayeredSettings:
    """Read all layers. Never raises: errors are listed in `problems`."""
    settings = list_settings()
    layered = LayeredSettings(
        {key: setting.default for key, setting in settings.items()},
        dict.fromkeys(settings, "default"),
        [user_file(config_folder)],
    )
    _apply_file(layered, settings, user_file(config_folder), of_project=False)
    if project is not None:
        layered.files.append(project_file(project))
        _apply_file(layered, settings, project_file(project), of_project=True)
    variables = {setting.variable: key for key, setting in settings.items()}
    for name, text in (environment or {}).items():
        if name in variables:
            _apply_value(layered, settings[variables[name]], text, f"environment {name}", textual=True)
        elif name.startswith("ROOKERY_") and name not in _OTHER_VARIABLES:
            _add_unknown_key(layered, "environment", name, variables)
    for key, text in flags:
        if key in settings:
            _apply_value(layered, settings[key], text, "flag", textual=True)
        else:
            _add_unknown_key(layered, "flag", key, settings, fatal=True)
    return layered


def parse_value(setting: SettingKey, value: Any, *, textual: bool) -> Any:
    """Convert `value` to the type of the setting; text from outside a file may spell a number or a boolean."""
    try:
        if setting.is_table:
            decoded = msgspec.json.decode(value) if textual else value
            return msgspec.to_builtins(msgspec.convert(decoded, setting.type))
        return msgspec.convert(value, setting.type, strict=not textual)
    except msgspec.MsgspecError:
        raise RookeryError("invalid-input", f"{setting.key} cannot be {value!r}", f"use {setting.accepts}") from None


def suggest_key(key: str, names: Iterable[str]) -> str:
    """Return a remedy for a key that does not exist."""
    close = difflib.get_close_matches(key, list(names), n=1)
    return f"did you mean {close[0]}?" if close else "see: rookery config show"


def _apply_file(layered: LayeredSettings, settings: dict[str, SettingKey], path: Path, *, of_project: bool) -> None:
    try:
        tree = tomllib.loads(read_settings_file(path, of_project=of_project))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        # The broken file of one project must not prevent the daemon, which serves other projects too, from starting.
        layered.problems.append(
            SettingProblem(str(path), f"cannot be read: {describe_error(error)}", "repair or remove it", not of_project)
        )
        return
    for key, value in _flatten(tree, settings):
        if key not in settings:
            _add_unknown_key(layered, str(path), key, settings)
        elif of_project and not settings[key].allowed_in_project:
            message = f"{key} cannot be set by a project, only by its user"
            layered.problems.append(SettingProblem(str(path), message, f"rookery config set {key} ...", False))
        else:
            _apply_value(layered, settings[key], value, str(path), textual=False, fatal=not of_project)


def read_settings_file(path: Path, *, of_project: bool) -> str:
    """Return the text of a settings file; that of a project must be a regular file within it, not a link out of it."""
    if not of_project:
        return read_plain(path, _LARGEST_FILE).decode()
    project = path.parent.parent
    return read_beneath(project, path.relative_to(project), _LARGEST_FILE).decode()


def _flatten(
    tree: Mapping[str, Any], settings: Mapping[str, SettingKey], prefix: str = ""
) -> Iterable[tuple[str, Any]]:
    """Yield the dotted key and the value of each entry; a table that is itself a setting is not split."""
    for key, value in tree.items():
        if isinstance(value, dict) and prefix + key not in settings:
            yield from _flatten(value, settings, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield prefix + key, value


def _apply_value(
    layered: LayeredSettings, setting: SettingKey, value: Any, source: str, *, textual: bool, fatal: bool = True
) -> None:
    try:
        layered.values[setting.key] = parse_value(setting, value, textual=textual)
        layered.sources[setting.key] = source
    except RookeryError as error:
        layered.problems.append(SettingProblem(source, error.message, error.remedy, fatal))


def _add_unknown_key(
    layered: LayeredSettings, source: str, key: str, names: Iterable[str], *, fatal: bool = False
) -> None:
    layered.problems.append(SettingProblem(source, f"there is no setting {key}", suggest_key(key, names), fatal))


def load_settings(options: Options) -> LayeredSettings:
    """Load the settings of all layers, for the project of the command line."""
    project = find_checkout(options.project) if options.project else None
    return load_layers(paths.config_folder(), project=project, environment=os.environ, flags=options.flags)


def reload_settings(options: Options, layered: LayeredSettings, events: Bus) -> dict[str, Any]:
    """Apply to `layered` the settings that can change while running.

    Return the applied keys, and those that need a restart.
    """
    fresh = load_settings(options)
    settings = fresh.settings()
    settings_by_key = list_settings()
    changed = [key for key, value in fresh.values.items() if value != layered.values[key]]
    applied = [key for key in changed if settings_by_key[key].is_live]
    log.set_level(settings.log.level)
    for key in applied:
        layered.values[key] = fresh.values[key]
        layered.sources[key] = fresh.sources[key]
    layered.problems = fresh.problems
    if applied:
        logger.info("settings applied: %s", ", ".join(applied))
        events.publish("settings.changed", keys=applied)
    return {"applied": applied, "needs_restart": [key for key in changed if key not in applied]}
