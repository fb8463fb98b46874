"""JSON with comments and trailing commas, read so that every name and value still knows where it stands."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LARGEST = 1_000_000
_DEEPEST = 100
# Far beyond any real file; reading this many takes about a tenth of a second, in which nothing else runs.
_MOST_VALUES = 10_000
BOM = "\ufeff"

_GAP = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"')
_WORD = re.compile(r"[-+.0-9A-Za-z_$]++")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_INFINITE = (float("inf"), float("-inf"))


class JsoncError(ValueError):
    """What is wrong with a text, and in which line of it."""

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
    """`start` is where its name stands; `comma` is where the comma after its value stands, if there is one."""

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
        """The member of that name; of several the last, as every reader of JSON takes it."""
        return next((member for member in reversed(self.members) if member.name == name), None)

    def repeated(self) -> Iterator[Member]:
        """Members that a later one of the same name hides."""
        seen: set[str] = set()
        for member in reversed(self.members):
            if member.name in seen:
                yield member
            seen.add(member.name)


Node = Object | Array | Scalar


def parse(text: str) -> Node:
    """The one value of `text`. JsoncError for anything else, and for what is too large or too deep."""
    if len(text) > LARGEST:
        raise JsoncError(f"longer than {LARGEST} characters", 1)
    return _Parser(text).document()


def plain(node: Node) -> Any:
    """The value without its places."""
    if isinstance(node, Object):
        return {member.name: plain(member.value) for member in node.members}
    return [plain(item) for item in node.items] if isinstance(node, Array) else node.value


def line_of(text: str, offset: int) -> int:
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
            raise self._wrong("there is more text after the end of the value")
        return node

    def _wrong(self, message: str) -> JsoncError:
        return JsoncError(message, line_of(self._text, self._at))

    def _skip(self) -> None:
        found = _GAP.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._text.startswith("/*", self._at):
            raise self._wrong("a comment does not end")

    def _value(self, depth: int) -> Node:
        self._values += 1
        if depth > _DEEPEST or self._values > _MOST_VALUES:
            raise self._wrong(f"nested deeper than {_DEEPEST}, or more than {_MOST_VALUES} values")
        start, first = self._at, self._text[self._at : self._at + 1]
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        value = self._string() if first == '"' else self._word()
        return Scalar(start, self._at, value)

    def _object(self, depth: int) -> Object:
        start, members = self._at, list[Member]()
        self._at += 1
        while not self._closed("}", start, more=not members or members[-1].comma is not None):
            at = self._at
            if self._text[at : at + 1] != '"':
                raise self._wrong('expected a name in double quotes, or "}"')
            name = self._string()
            self._skip()
            if self._text[self._at : self._at + 1] != ":":
                raise self._wrong(f'expected ":" after the name {json.dumps(name)}')
            self._at += 1
            self._skip()
            value = self._value(depth + 1)
            members.append(Member(name, at, value, self._comma()))
        return Object(start, self._at, tuple(members))

    def _array(self, depth: int) -> Array:
        start, items, more = self._at, list[Node](), True
        self._at += 1
        while not self._closed("]", start, more=more):
            items.append(self._value(depth + 1))
            more = self._comma() is not None
        return Array(start, self._at, tuple(items))

    def _closed(self, bracket: str, start: int, *, more: bool) -> bool:
        """Go over the closing bracket, or stay before what comes next, which is allowed only if `more`."""
        self._skip()
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        if self._at >= len(self._text):
            raise self._wrong(f'"{self._text[start]}" in line {line_of(self._text, start)} is never closed')
        if not more:
            raise self._wrong(f'expected "," or "{bracket}"')
        return False

    def _comma(self) -> int | None:
        self._skip()
        if not self._text.startswith(",", self._at):
            return None
        self._at += 1
        return self._at - 1

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            raise self._wrong("text in quotes does not end in its line, or has a control character in it")
        try:
            value = json.loads(found[0])
            value.encode()
        except ValueError:
            raise self._wrong("text in quotes has a wrong escape in it") from None
        self._at = found.end()
        return value

    def _word(self) -> int | float | bool | None:
        found = _WORD.match(self._text, self._at)
        word = found[0] if found else self._text[self._at : self._at + 1]
        if found and word in _WORDS:
            self._at = found.end()
            return _WORDS[word]
        try:
            value = json.loads(word) if _NUMBER.fullmatch(word) else None
        except ValueError:  # more digits than Python turns into a number
            value = None
        if found is None or not isinstance(value, int | float) or value in _INFINITE:
            raise self._wrong(f"expected a value, found {word[:40]!r}" if word else "expected a value, found the end")
        self._at = found.end()
        return value
