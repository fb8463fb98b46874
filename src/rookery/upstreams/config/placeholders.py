"""Placeholders in definitions: `{env:X}` and `{file:path}` of OpenCode, and `${X}` of Claude."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rookery.upstreams.config.definition import Dialect
from rookery.upstreams.config.jsonc import Array, Node, Object

# The limit for all values in one file together: a few characters can stand for a large file, many times over.
_MAX_EXPANSION = 1_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACES = re.compile(r"\{(env|file):([^}]+)\}")
_DOLLAR = re.compile(r"(\$)\{([^}]*)\}")
_BOTH = re.compile(rf"(?:{_BRACES.pattern}|{_DOLLAR.pattern})")
_PLACEHOLDERS: dict[Dialect | None, re.Pattern[str]] = {"rookery": _BOTH, "opencode": _BRACES, "claude": _DOLLAR}


class EntryError(Exception):
    """Why an entry cannot be used, and the position in the file."""

    def __init__(self, message: str, at: int, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.remedy = remedy


@dataclass
class Substitution:
    """Replaces the placeholders of one file. Without a dialect there are none, and text is literal.

    `read` returns the content of a file, or raises OSError or ValueError. `unresolved` collects the errors of variables
    and files that have no value. They are replaced by empty text, which must not be used.
    """

    dialect: Dialect | None
    environment: Mapping[str, str]
    read: Callable[[str], str]
    show_files: bool
    unresolved: list[EntryError] = field(default_factory=list[EntryError])
    _expanded_length: int = 0

    def values(self, node: Node) -> tuple[Any, Any]:
        """Return the value of `node` with all placeholders replaced, and as a person wrote it.

        In the second value only files are inserted, and only with `show_files`: an approval then covers their content,
        and the content of the user's own files is not shown.
        """
        if isinstance(node, Object):
            pairs = [(member.name, self.values(member.value)) for member in node.members]
            return {name: full for name, (full, _) in pairs}, {name: written for name, (_, written) in pairs}
        if isinstance(node, Array):
            both = [self.values(item) for item in node.items]
            return [full for full, _ in both], [written for _, written in both]
        return self._text(node.value, node.start) if isinstance(node.value, str) else (node.value, node.value)

    def _text(self, text: str, at: int) -> tuple[str, str]:
        """Replace the placeholders in a text. Inserted values are data and are not searched for placeholders."""
        pattern = _PLACEHOLDERS.get(self.dialect)
        full = list[str]()
        written = list[str]()
        end = 0
        for match in pattern.finditer(text) if pattern else ():
            kind, name = (part for part in match.groups() if part is not None)
            value = self._value(kind, name, at)
            before = text[end : match.start()]
            full += [before, value]
            written += [before, value if kind == "file" and self.show_files else match[0]]
            end = match.end()
        return "".join([*full, text[end:]]), "".join([*written, text[end:]])

    def _value(self, kind: str, name: str, at: int) -> str:
        value = self._file(name, at) if kind == "file" else self._variable(kind, name, at)
        self._expanded_length += len(value)
        if self._expanded_length > _MAX_EXPANSION:
            raise EntryError(f"the values of the placeholders are longer than {_MAX_EXPANSION} characters", at)
        return value

    def _variable(self, kind: str, name: str, at: int) -> str:
        default: str | None = None
        if kind == "$":
            name, colon, rest = name.partition(":-")
            default = rest if colon else None
            if not _NAME.fullmatch(name):
                raise EntryError(f"${{{name}}} is not the name of a variable", at, "write ${NAME} or ${NAME:-default}")
        value = self.environment.get(name, default)
        if value is None:
            default_hint = f", or write ${{{name}:-default}}" if kind == "$" else ""
            remedy = f"set it where Rookery is started{default_hint}"
            return self._fail(EntryError(f"the variable {name} is not set", at, remedy))
        try:
            value.encode()
        except UnicodeEncodeError:
            return self._fail(EntryError(f"the variable {name} is not valid UTF-8", at))
        return value

    def _file(self, name: str, at: int) -> str:
        try:
            return self.read(name).strip()
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            return self._fail(EntryError(f"{{file:{name}}} cannot be read: {reason}", at))

    def _fail(self, error: EntryError) -> str:
        self.unresolved.append(error)
        return ""
