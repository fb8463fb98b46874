"""What tells whether work is left: open todos, the boxes of a plan, a just task. Touches nothing outside."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from rookery.plugins.boulder.gates import Work
from rookery.system.clean import clean
from rookery.system.errors import RookeryError

_KINDS = "todos, plan:<file> or just:<task>"
_SHOWN = 5
_LONGEST = 200
_BOX = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)]) \[(.)\](.*)$")
_FENCE = re.compile(r"^[ \t]*(```|~~~)")


class Todo(msgspec.Struct, frozen=True):
    """As OpenCode keeps it for a session."""

    content: str = ""
    status: str = ""


@dataclass(frozen=True)
class Checks:
    """Those that are declared. Nothing declared leaves it to the assistant's last words."""

    todos: bool = False
    plans: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [*(["todos"] if self.todos else []), *(f"plan:{one}" for one in self.plans)]
        return ", ".join([*parts, *(f"just:{one}" for one in self.tasks)])


def read_checks(text: str) -> Checks:
    """As they are written in settings and arguments, with commas between them."""
    todos, plans, tasks = False, list[str](), list[str]()
    for word in filter(None, (one.strip() for one in text.split(","))):
        kind, _, of = word.partition(":")
        of = of.strip()
        if word == "todos":
            todos = True
        elif kind == "plan" and of:
            plans.append(of)
        elif kind == "just" and of and not of.startswith("-"):
            tasks.append(of)
        else:
            raise RookeryError("invalid-input", f"{word!r} is no check of boulder", f"give {_KINDS}")
    return Checks(todos, tuple(plans), tuple(tasks))


def by_todos(todos: Sequence[Todo]) -> Work | None:
    """A session that keeps none says nothing by that."""
    if not todos:
        return None
    return _left([one.content for one in todos if one.status not in ("completed", "cancelled")], "todo", "")


def by_boxes(text: str, plan: str) -> Work:
    """`- [ ]` is open; whatever else stands in the box is not. What is shown as code is no box."""
    boxes = list(_boxes(text))
    if not boxes:
        return Work(None, f"{plan} has no boxes")
    return _left([words for mark, words in boxes if mark == " "], "box", f" in {plan}")


def by_task(task: str, *, passed: bool, told: str) -> Work:
    return Work(not passed, f"just {task} {'passes' if passed else told}")


def together(found: Iterable[Work | None]) -> Work | None:
    """Complete only if all say so; work is left if one says so; None if nobody says anything."""
    all_ = [one for one in found if one is not None]
    for answer in (True, None, False):
        of_those = [one.why for one in all_ if one.left is answer]
        if of_those:
            return Work(answer, "; ".join(of_those))
    return None


def _left(open_: Sequence[str], one: str, where: str) -> Work:
    many = "boxes" if one == "box" else f"{one}s"
    if not open_:
        return Work(False, f"no {one} is open{where}")
    shown = ", ".join(f'"{_short(words)}"' for words in open_[:_SHOWN])
    more = f" and {len(open_) - _SHOWN} more" if len(open_) > _SHOWN else ""
    verb = f"{len(open_)} {one} is" if len(open_) == 1 else f"{len(open_)} {many} are"
    return Work(True, f"{verb} open{where}: {shown}{more}")


def _short(words: str) -> str:
    """In one line, with nothing hidden, and with no quote that would end the one around it."""
    plain = " ".join(clean(words).replace('"', "'").split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def _boxes(text: str) -> Iterable[tuple[str, str]]:
    fence = ""
    for line in text.splitlines():
        if (mark := _FENCE.match(line)) is not None:
            fence = "" if fence == mark[1] else fence or mark[1]
        elif not fence and (box := _BOX.match(line)) is not None:
            yield box[1], box[2].strip()
