"""The environment of a child process: an allow-list of variables, and what a setting of the user adds to it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rookery.system.process.table import MARKER

# Variables by which programs find files, the user's language and the user's certificates. None holds credentials.
_USER_VARIABLES = {"HOME", "LOGNAME", "USER", "SHELL", "PATH", "TMPDIR", "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ"}
_FOLDERS = {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}
_CERTIFICATES = {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"}
ALLOWED_VARIABLES = frozenset(_USER_VARIABLES | _FOLDERS | _CERTIFICATES)
# Variables that programs of the user's own get too: those of the screen, and of proxies in both spellings.
_DISPLAY = {"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"}
_PROXIES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
DEFAULT_VARIABLES = ALLOWED_VARIABLES | _DISPLAY | _PROXIES | {name.lower() for name in _PROXIES}
# Variables of the daemon that no program may see, not even one that gets the whole environment.
NEVER_INHERITED = frozenset({"ROOKERY_TOKEN", MARKER})

_MAX_NAMES = 3
_MAX_OUTPUT = 8_000
_NAME = re.compile(r"(?<![\w/.-])\$?\{?([A-Z][A-Z0-9_]+)\b")
# What programs say of a variable that is not set, with the name in the place of NAME.
_AFTER_NAME = (
    "not set|unset|unbound|not defined|undefined|missing|required|must be|needs? to be|not found|not present|"
    "not provided|not configured|empty|expected"
)
_BEFORE_NAME = "missing|set|export|provide|define|specify|requires?|needs?|without|no|variable"
_WORDS = r"(?:env(?:ironment)? )?(?:variable )?(?:(?:is|was|are|parameter|null or) )*"
_ARTICLES = "(?:(?:the|a|an|your|required|environment|env|variable):? )*"
_COMPLAINTS = tuple(
    re.compile(text.replace("NAME", r"[`'\"$({]*([A-Z][A-Z0-9_]+)[`'\")}]*"))
    for text in (
        rf"(?<![\w/.-])NAME:? (?i:{_WORDS}(?:{_AFTER_NAME}))",
        r"KeyError: NAME",
        rf"(?i:\b(?:{_BEFORE_NAME}) {_ARTICLES})NAME(?![\w/.-])",
    )
)


def allowed_environment(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the allow-listed part of this process's environment, updated with `overrides`."""
    return {name: value for name, value in os.environ.items() if _is_allowed(name)} | dict(overrides or {})


def inherited_environment(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the whole environment of this process, without the daemon's own secrets, updated with `overrides`."""
    inherited = {name: value for name, value in os.environ.items() if name not in NEVER_INHERITED}
    return inherited | dict(overrides or {})


def _is_allowed(name: str) -> bool:
    return name in ALLOWED_VARIABLES or name.startswith("LC_")


@dataclass(frozen=True)
class EnvironmentFilter:
    """Selects what programs of the user's own get of the daemon's environment: the default list, and `patterns`.

    `setting` is the name of the setting that defines the patterns, for messages.
    """

    setting: str
    patterns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, setting: str, value: str) -> "EnvironmentFilter":
        """Return the filter for the value of a setting: names or wildcards, separated by commas."""
        return cls(setting, tuple(pattern for part in value.split(",") if (pattern := part.strip())))

    def select(self, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the selected part of this process's environment, updated with `overrides`."""
        selected = {name: value for name, value in os.environ.items() if self._covers(name)}
        return selected | dict(overrides or {})

    def explain_failure(self, output: str, environment: Mapping[str, str]) -> str:
        """Return which variables a failed program in `environment` lacks, and what to do; empty if it names none."""
        withheld, unset = find_missing_variables(output, environment)
        if withheld:
            value = ",".join([*self.patterns, *withheld])
            return f"{_describe_withheld(withheld)}; to pass it on: rookery config set {self.setting} '{value}'"
        if unset:
            where = "set it where Rookery is started"
            return f"{_describe_unset(unset)}; {where}, and name it in the setting {self.setting}"
        return ""

    def _covers(self, name: str) -> bool:
        if name in NEVER_INHERITED:
            return False
        return (
            _is_allowed(name)
            or name in DEFAULT_VARIABLES
            or any(fnmatchcase(name, pattern) for pattern in self.patterns)
        )


def explain_reduced_environment(output: str, environment: Mapping[str, str], remedy: str) -> str:
    """Return which variables a failed program lacks that no setting passes on, with `remedy`; empty if it names none.

    `NAME` in the remedy stands for the first of them.
    """
    withheld, unset = find_missing_variables(output, environment)
    if not withheld and not unset:
        return ""
    text = _describe_withheld(withheld) if withheld else _describe_unset(unset)
    return f"{text}; {remedy.replace('NAME', (withheld or unset)[0])}"


def find_missing_variables(output: str, environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the variables that the output of a failed program names and its environment lacks.

    First those that this process has and that were withheld, then those that it lacks too. Of the latter, only those
    count that the program complains about: any word in capitals could be the name of one.
    """
    output = output[-_MAX_OUTPUT:]
    complaints = {match[1]: None for pattern in _COMPLAINTS for match in pattern.finditer(output)}
    mentions = {match[1]: None for match in _NAME.finditer(output) if "_" in match[1] or "$" in match[0]}
    missing = [name for name in complaints | mentions if name not in environment and name not in NEVER_INHERITED]
    withheld = [name for name in missing if name in os.environ]
    unset = [name for name in missing if name not in os.environ and name in complaints]
    return withheld[:_MAX_NAMES], unset[:_MAX_NAMES]


def _describe_withheld(names: list[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return f"its environment was reduced: {', '.join(names)} {verb} set where Rookery was started, but not passed on"


def _describe_unset(names: list[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return f"its environment was reduced: {', '.join(names)} {verb} not set here, nor where Rookery was started"
