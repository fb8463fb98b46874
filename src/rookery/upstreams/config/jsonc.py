"""JSON with comments and trailing commas: a parser that keeps positions, and edits of single members.

An edit changes one member of an object and leaves every other character of the text as it is.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

MAX_LENGTH = 1_000_000
_MAX_DEPTH = 100
# Far beyond any real file; reading this many takes about a tenth of a second, in which nothing else runs.
_MAX_VALUES = 10_000
BOM = "\ufeff"

_GAP = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"')
_WORD = re.compile(r"[-+.0-9A-Za-z_$]++")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_INFINITE = (float("inf"), float("-inf"))

_INDENT = re.compile(r"[ \t]*")
# Comments that follow a member on its own line, and belong to it.
_REMARK = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=\r?\n)")
_REST_OF_LINE = re.compile(r"[ \t]*\r?\n")
_MAX_LIST_WIDTH = 80


class JsoncError(ValueError):
    """An error in a text, with its line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Scalar:
    start: int
    end: int
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Array:
    start: int
    end: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Member:
    """`start` is the position of its name; `comma` is that of the comma after its value, if there is one."""

    name: str
    start: int
    value: "Node"
    comma: int | None


@dataclass(frozen=True, slots=True)
class Object:
    start: int
    end: int
    members: tuple[Member, ...]

    def get(self, name: str) -> Member | None:
        """Return the member of that name; of several the last, as all parsers of JSON do."""
        return next((member for member in reversed(self.members) if member.name == name), None)

    def repeated(self) -> Iterator[Member]:
        """Yield the members that a later one of the same name hides."""
        seen: set[str] = set()
        for member in reversed(self.members):
            if member.name in seen:
                yield member
            seen.add(member.name)


Node = Object | Array | Scalar


def parse_jsonc(text: str) -> Node:
    """Parse the single value of `text`. Raise JsoncError for anything else, and if it is too large or too deep."""
    if len(text) > MAX_LENGTH:
        raise JsoncError(f"longer than {MAX_LENGTH} characters", 1)
    return _Parser(text).document()


def to_python(node: Node) -> Any:
    """Return the value without positions."""
    if isinstance(node, Object):
        return {member.name: to_python(member.value) for member in node.members}
    return [to_python(item) for item in node.items] if isinstance(node, Array) else node.value


def find_line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len(BOM) if text.startswith(BOM) else 0
        self._values = 0

    def document(self) -> Node:
        self._skip()
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._error("there is more text after the end of the value")
        return node

    def _error(self, message: str) -> JsoncError:
        return JsoncError(message, find_line(self._text, self._at))

    def _skip(self) -> None:
        match = _GAP.match(self._text, self._at)
        self._at = match.end() if match else self._at
        if self._text.startswith("/*", self._at):
            raise self._error("a comment does not end")

    def _value(self, depth: int) -> Node:
        self._values += 1
        if depth > _MAX_DEPTH or self._values > _MAX_VALUES:
            raise self._error(f"nested deeper than {_MAX_DEPTH}, or more than {_MAX_VALUES} values")
        start = self._at
        first = self._text[self._at : self._at + 1]
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        value = self._string() if first == '"' else self._word()
        return Scalar(start, self._at, value)

    def _object(self, depth: int) -> Object:
        start = self._at
        members = list[Member]()
        self._at += 1
        while not self._skip_closing("}", start, more=not members or members[-1].comma is not None):
            at = self._at
            if self._text[at : at + 1] != '"':
                raise self._error('expected a name in double quotes, or "}"')
            name = self._string()
            self._skip()
            if self._text[self._at : self._at + 1] != ":":
                raise self._error(f'expected ":" after the name {json.dumps(name)}')
            self._at += 1
            self._skip()
            value = self._value(depth + 1)
            members.append(Member(name, at, value, self._comma()))
        return Object(start, self._at, tuple(members))

    def _array(self, depth: int) -> Array:
        start = self._at
        items = list[Node]()
        more = True
        self._at += 1
        while not self._skip_closing("]", start, more=more):
            items.append(self._value(depth + 1))
            more = self._comma() is not None
        return Array(start, self._at, tuple(items))

    def _skip_closing(self, bracket: str, start: int, *, more: bool) -> bool:
        """Skip the closing bracket, or stop before the next item, which is allowed only if `more`."""
        self._skip()
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        if self._at >= len(self._text):
            raise self._error(f'"{self._text[start]}" in line {find_line(self._text, start)} is never closed')
        if not more:
            raise self._error(f'expected "," or "{bracket}"')
        return False

    def _comma(self) -> int | None:
        self._skip()
        if not self._text.startswith(",", self._at):
            return None
        self._at += 1
        return self._at - 1

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("a string does not end in its line, or contains a control character")
        try:
            value = json.loads(match[0])
            value.encode()
        except ValueError:
            raise self._error("a string contains an invalid escape") from None
        self._at = match.end()
        return value

    def _word(self) -> int | float | bool | None:
        match = _WORD.match(self._text, self._at)
        word = match[0] if match else self._text[self._at : self._at + 1]
        if match and word in _WORDS:
            self._at = match.end()
            return _WORDS[word]
        try:
            value = json.loads(word) if _NUMBER.fullmatch(word) else None
        except ValueError:  # more digits than Python converts to a number
            value = None
        if match is None or not isinstance(value, int | float) or value in _INFINITE:
            raise self._error(f"expected a value, found {word[:40]!r}" if word else "expected a value, found the end")
        self._at = match.end()
        return value


def insert_member(text: str, root: Node, target: Object, name: str, value: Any) -> str:
    """Return the text with a new member at the end of `target`, an object of `root`."""
    newline = _newline(text)
    unit = _indent_unit(text, root)
    if not target.members:
        outer = _indent(text, target.start)
        member = _render({name: value}, newline, outer, unit, wide=True)
        inner = text[target.start + 1 : target.end - 1].rstrip()
        return text[: target.start + 1] + inner + member[1:] + text[target.end :]
    first = target.members[0]
    last = target.members[-1]
    comma, end = ("", last.comma + 1) if last.comma is not None else (",", last.value.end)
    trailing = "" if comma else ","
    if not _leads_line(text, first.start):
        pair = f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[:end]}{comma} {pair}{trailing}{text[end:]}"
    indent = _indent(text, first.start)
    pair = f"{json.dumps(name, ensure_ascii=False)}: {_render(value, newline, indent, unit, wide=True)}"
    remark = _REMARK.match(text, end)
    after = remark.end() if remark else end
    return f"{text[:end]}{comma}{text[end:after]}{newline}{indent}{pair}{trailing}{text[after:]}"


def replace_value(text: str, root: Node, member: Member, value: Any) -> str:
    """Return the text with another value for `member`, on several lines if the old value was."""
    start = member.value.start
    end = member.value.end
    wide = "\n" in text[start:end]
    rendered = _render(value, _newline(text), _indent(text, member.start), _indent_unit(text, root), wide=wide)
    return text[:start] + rendered + text[end:]


def remove_member(text: str, target: Object, member: Member) -> str:
    """Return the text without `member` of `target`. Comments around it are kept, because people wrote them."""
    before = text[: member.start]
    after = text[member.value.end :]
    if member.comma is not None:
        between = text[member.value.end : member.comma]
        after = text[member.comma + 1 :]
        after = (between if between.strip() else "") + after
    elif (index := target.members.index(member)) > 0:
        # The new last member gets no comma either: not every parser accepts a trailing one.
        comma = cast(int, target.members[index - 1].comma)
        before = text[:comma] + text[comma + 1 : member.start]
    if not _leads_line(before, len(before)):
        return before + after.lstrip(" \t") if member.comma is not None else before.rstrip(" \t") + after
    blank = _REST_OF_LINE.match(after)
    if blank is None:
        return before + after.lstrip(" \t")
    return before[: _line_start(before, len(before))] + after[blank.end() :]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1 or (len(BOM) if text.startswith(BOM) else 0)


def _indent(text: str, at: int) -> str:
    match = _INDENT.match(text, _line_start(text, at))
    return match[0] if match else ""


def _leads_line(text: str, at: int) -> bool:
    return _line_start(text, at) > 0 and not text[_line_start(text, at) : at].strip()


def _indent_unit(text: str, root: Node) -> str:
    """Return the indentation of one level in this file."""
    first = root.members[0].start if isinstance(root, Object) and root.members else 0
    return (_indent(text, first) if _leads_line(text, first) else "") or "  "


def _render(value: Any, newline: str, indent: str, unit: str, *, wide: bool) -> str:
    """Return a value as people write it: an object on several lines, a list of a few words on one."""
    short = json.dumps(value, ensure_ascii=False)
    if not wide or not value or not isinstance(value, dict | list):
        return short
    deeper = indent + unit
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        inner = [
            f"{json.dumps(name, ensure_ascii=False)}: {_render(item, newline, deeper, unit, wide=True)}"
            for name, item in pairs
        ]
        start, end = "{}"
    else:
        items = cast("list[Any]", value)
        if len(short) <= _MAX_LIST_WIDTH and not any(isinstance(item, dict | list) for item in items):
            return short
        inner = [_render(item, newline, deeper, unit, wide=True) for item in items]
        start, end = "[]"
    return f"{start}{newline}{deeper}" + f",{newline}{deeper}".join(inner) + f"{newline}{indent}{end}"
