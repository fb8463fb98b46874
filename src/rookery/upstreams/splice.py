"""Changes one member of an object in JSONC text, and leaves every other character as a person wrote it."""

import json
import re
from typing import Any, cast

from rookery.upstreams.jsonc import BOM, Member, Node, Object

_INDENT = re.compile(r"[ \t]*")
# What may stand after a member in its own line, and is about it.
_REMARK = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=\r?\n)")
_REST_OF_LINE = re.compile(r"[ \t]*\r?\n")
_WIDEST_LIST = 80


def insert_member(text: str, root: Node, target: Object, name: str, value: Any) -> str:
    """Text in which `target`, an object of `root`, has one more member, after the others."""
    newline, unit = _newline(text), _unit(text, root)
    if not target.members:
        outer = _indent(text, target.start)
        member = _render({name: value}, newline, outer, unit, wide=True)
        inner = text[target.start + 1 : target.end - 1].rstrip()
        return text[: target.start + 1] + inner + member[1:] + text[target.end :]
    first, last = target.members[0], target.members[-1]
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
    """Text in which `member` has another value, over as many lines as the old one took."""
    start, end = member.value.start, member.value.end
    wide = "\n" in text[start:end]
    shown = _render(value, _newline(text), _indent(text, member.start), _unit(text, root), wide=wide)
    return text[:start] + shown + text[end:]


def remove_member(text: str, target: Object, member: Member) -> str:
    """Text in which `target` lacks `member`. Comments around it stay: a tool does not throw away what people wrote."""
    before, after = text[: member.start], text[member.value.end :]
    if member.comma is not None:
        between, after = text[member.value.end : member.comma], text[member.comma + 1 :]
        after = (between if between.strip() else "") + after
    elif (index := target.members.index(member)) > 0:
        # What is last now has no comma after it, as what was last had none: not every reader takes one.
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
    found = _INDENT.match(text, _line_start(text, at))
    return found[0] if found else ""


def _leads_line(text: str, at: int) -> bool:
    return _line_start(text, at) > 0 and not text[_line_start(text, at) : at].strip()


def _unit(text: str, root: Node) -> str:
    """What this file indents by."""
    first = root.members[0].start if isinstance(root, Object) and root.members else 0
    return (_indent(text, first) if _leads_line(text, first) else "") or "  "


def _render(value: Any, newline: str, indent: str, unit: str, *, wide: bool) -> str:
    """A value as people write it: an object over several lines, a list of a few words in one."""
    short = json.dumps(value, ensure_ascii=False)
    if not wide or not value or not isinstance(value, dict | list):
        return short
    deeper = indent + unit
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        inner = [
            f"{json.dumps(name, ensure_ascii=False)}: {_render(one, newline, deeper, unit, wide=True)}"
            for name, one in pairs
        ]
        start, end = "{}"
    else:
        items = cast("list[Any]", value)
        if len(short) <= _WIDEST_LIST and not any(isinstance(item, dict | list) for item in items):
            return short
        inner = [_render(item, newline, deeper, unit, wide=True) for item in items]
        start, end = "[]"
    return f"{start}{newline}{deeper}" + f",{newline}{deeper}".join(inner) + f"{newline}{indent}{end}"
