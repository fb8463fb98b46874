"""Settings from defaults < user file < project file < environment < flags, with the source of each value."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rookery.daemon.known import Known, known_settings
from rookery.daemon.settings import Settings
from rookery.system.errors import RookeryError
from rookery.system.files import read_beneath

# Variables with our prefix that are no settings.
_OTHER_VARIABLES = frozenset(
    {"ROOKERY_HOME", "ROOKERY_SPAWN", "ROOKERY_TOKEN", "ROOKERY_MCP_PORT", "ROOKERY_WORKSPACE_PATH"}
) | {"ROOKERY_WORKSPACE_HEADER", "ROOKERY_MODEL_KEY"}


_LARGEST_FILE = 1_000_000


@dataclass(frozen=True)
class Problem:
    """Something in a source that is not used; `fatal` ones keep the daemon from starting."""

    source: str
    message: str
    remedy: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.source}: {self.message} ({self.remedy})" if self.remedy else f"{self.source}: {self.message}"


@dataclass
class Layered:
    """The effective settings, and where each one came from."""

    values: dict[str, Any]
    sources: dict[str, str]
    files: list[Path]
    problems: list[Problem] = field(default_factory=list[Problem])

    def settings(self) -> Settings:
        """The typed settings, or an error that names everything fatal."""
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


def checkout_of(folder: Path) -> Path | None:
    """The checkout that a folder lies in, found without running git."""
    try:
        return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)
    except OSError:
        return None


def load(
    config_folder: Path,
    *,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[tuple[str, str]] = (),
) -> Layered:
    """Read all layers. Never raises: what is wrong is in `problems`."""
    known = known_settings()
    found = Layered(
        {key: one.default for key, one in known.items()}, dict.fromkeys(known, "default"), [user_file(config_folder)]
    )
    _take_file(found, known, user_file(config_folder), of_project=False)
    if project is not None:
        found.files.append(project_file(project))
        _take_file(found, known, project_file(project), of_project=True)
    variables = {one.variable: key for key, one in known.items()}
    for name, text in (environment or {}).items():
        if name in variables:
            _take(found, known[variables[name]], text, f"environment {name}", textual=True)
        elif name.startswith("ROOKERY_") and name not in _OTHER_VARIABLES:
            _unknown(found, "environment", name, variables)
    for key, text in flags:
        if key in known:
            _take(found, known[key], text, "flag", textual=True)
        else:
            _unknown(found, "flag", key, known, fatal=True)
    return found


def parse(known: Known, value: Any, *, textual: bool) -> Any:
    """`value` as the type of the setting; text from outside a file may spell a number or a truth value."""
    try:
        if known.is_table:
            given = msgspec.json.decode(value) if textual else value
            return msgspec.to_builtins(msgspec.convert(given, known.type))
        return msgspec.convert(value, known.type, strict=not textual)
    except msgspec.MsgspecError:
        raise RookeryError("invalid-input", f"{known.key} cannot be {value!r}", f"give {known.accepts}") from None


def nearest(key: str, known: Iterable[str]) -> str:
    """A remedy for a key that does not exist."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"did you mean {close[0]}?" if close else "see: rookery config show"


def _take_file(found: Layered, known: dict[str, Known], path: Path, *, of_project: bool) -> None:
    try:
        tree = tomllib.loads(read_file(path, of_project=of_project))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # A project's broken file must not keep the daemon, which serves other projects too, from starting.
        found.problems.append(Problem(str(path), f"cannot be read: {error}", "mend or remove it", not of_project))
        return
    for key, value in _flatten(tree, known):
        if key not in known:
            _unknown(found, str(path), key, known)
        elif of_project and not known[key].project:
            message = f"{key} cannot be set by a project, only by its user"
            found.problems.append(Problem(str(path), message, f"rookery config set {key} ...", False))
        else:
            _take(found, known[key], value, str(path), textual=False, fatal=not of_project)


def read_file(path: Path, *, of_project: bool) -> str:
    """The text of a settings file; that of a project must be a plain one, and not a link to what is none of it."""
    if not of_project:
        return path.read_text(encoding="utf-8")
    project = path.parent.parent
    return read_beneath(project, path.relative_to(project), _LARGEST_FILE).decode()


def _flatten(tree: Mapping[str, Any], known: Mapping[str, Known], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and prefix + key not in known:
            yield from _flatten(value, known, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield prefix + key, value


def _take(found: Layered, known: Known, value: Any, source: str, *, textual: bool, fatal: bool = True) -> None:
    try:
        found.values[known.key] = parse(known, value, textual=textual)
        found.sources[known.key] = source
    except RookeryError as error:
        found.problems.append(Problem(source, error.message, error.remedy, fatal))


def _unknown(found: Layered, source: str, key: str, known: Iterable[str], *, fatal: bool = False) -> None:
    found.problems.append(Problem(source, f"there is no setting {key}", nearest(key, known), fatal))
