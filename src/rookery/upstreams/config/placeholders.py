"""Placeholders in the values of a definition: OpenCode's `{env:X}` and `{file:path}`, and Claude's `${X}`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rookery.upstreams.definition import Dialect
from rookery.upstreams.jsonc import Array, Node, Object

# What the placeholders of one file may come to in all: a few characters can stand for a large file, many times over.
_MOST = 1_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACES = re.compile(r"\{(env|file):([^}]+)\}")
_DOLLAR = re.compile(r"(\$)\{([^}]*)\}")
_BOTH = re.compile(rf"(?:{_BRACES.pattern}|{_DOLLAR.pattern})")
_PLACEHOLDERS: dict[Dialect | None, re.Pattern[str]] = {"rookery": _BOTH, "opencode": _BRACES, "claude": _DOLLAR}


class Unfit(Exception):
    """Why an entry cannot be used, and at which character of the file."""

    def __init__(self, message: str, at: int, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.remedy = remedy


@dataclass
class Substitution:
    """The placeholders of one file; without a dialect there are none, and text stands for itself.

    `read` gives the content of a file that is named, or raises OSError or ValueError. `missing` gathers the variables
    that became empty text, with where each stands first.
    """

    dialect: Dialect | None
    environment: Mapping[str, str]
    read: Callable[[str], str]
    show_files: bool
    missing: dict[str, int] = field(default_factory=dict[str, int])
    _spent: int = 0

    def values(self, node: Node) -> tuple[Any, Any]:
        """The plain value of `node` with everything put in, and as a person wrote it.

        In the latter only files are put in, and only with `show_files`: so that to approve it is to approve what they
        said, and that what a user keeps in files of their own is not shown around.
        """
        if isinstance(node, Object):
            pairs = [(member.name, self.values(member.value)) for member in node.members]
            return {name: full for name, (full, _) in pairs}, {name: written for name, (_, written) in pairs}
        if isinstance(node, Array):
            both = [self.values(item) for item in node.items]
            return [full for full, _ in both], [written for _, written in both]
        return self._text(node.value, node.start) if isinstance(node.value, str) else (node.value, node.value)

    def _text(self, text: str, at: int) -> tuple[str, str]:
        """What was put in is not looked through again: a variable's value is data, whoever set it."""
        pattern = _PLACEHOLDERS.get(self.dialect)
        full, written, end = list[str](), list[str](), 0
        for found in pattern.finditer(text) if pattern else ():
            kind, name = (part for part in found.groups() if part is not None)
            value = self._value(kind, name, at)
            before = text[end : found.start()]
            full += [before, value]
            written += [before, value if kind == "file" and self.show_files else found[0]]
            end = found.end()
        return "".join([*full, text[end:]]), "".join([*written, text[end:]])

    def _value(self, kind: str, name: str, at: int) -> str:
        value = self._file(name, at) if kind == "file" else self._variable(kind, name, at)
        self._spent += len(value)
        if self._spent > _MOST:
            raise Unfit(f"what is put in for placeholders is longer than {_MOST} characters", at)
        return value

    def _variable(self, kind: str, name: str, at: int) -> str:
        default: str | None = None
        if kind == "$":
            name, colon, rest = name.partition(":-")
            default = rest if colon else None
            if not _NAME.fullmatch(name):
                raise Unfit(f"${{{name}}} is not the name of a variable", at, "write ${NAME} or ${NAME:-default}")
        value = self.environment.get(name, default)
        if value is None:
            if kind == "$":
                raise Unfit(f"the variable {name} is not set", at, f"set it, or write ${{{name}:-default}}")
            self.missing.setdefault(name, at)
            return ""
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(f"the variable {name} is not valid UTF-8", at) from None
        return value

    def _file(self, name: str, at: int) -> str:
        try:
            return self.read(name).strip()
        except (OSError, ValueError) as error:
            told = (isinstance(error, OSError) and error.strerror) or str(error)
            raise Unfit(f"{{file:{name}}} cannot be read: {told}", at) from None
