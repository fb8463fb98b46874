"""The first screen of a session of the real OpenCode is complete, even on a busy machine."""

import asyncio
import base64
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rookery.sessions.drawing.picture import CELL_HEIGHT, CELL_WIDTH
from tests.support.daemon.system import FullSystem, start_system
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]

MARKDOWN = """# A plan for the release

Some **bold text**, *emphasis* and `inline code` with a [link](https://example.org/docs).

1. Read the *whole* file
2. Change the function `f`
   - keep its name
   - [x] add a test

| Name | Value of it |
| --- | --- |
| alpha | a value |
| beta | another one |

```python
def f(x: int) -> int:
    return x + 1  # add one
```

> a quotation of somebody

The very last sentence, which ends it."""
CODE = "It is short:\n\n```sh\ngit status --short\nmake check\n```"
LONG = "\n\n".join(f"Paragraph {n} goes over the edge of the screen, {'and ' * 30}up to {n}." for n in range(40))
JAPANESE = "漢字とかなが混ざった文章です。絵文字 🎉 も入ります。"
TOOLS = [
    {"call": "bash", "with": {"command": "printf 'first line\\nsecond line\\n'", "description": "Prints two lines"}},
    {"call": "read", "with": {"filePath": "README.md"}},
]
SCRIPT: dict[str, Any] = {
    "turn": [
        {"when": "Say done", "step": [{"say": "done"}]},
        {"when": "A plan", "step": [{"say": MARKDOWN}]},
        {"when": "A command", "step": [{"say": CODE}]},
        {"when": "A long story", "step": [{"say": LONG}]},
        {"when": "Use tools", "step": [*TOOLS, {"say": "Both tools have run, and that is all."}]},
        {"when": "In Japanese", "step": [{"say": JAPANESE * 4 + "最後の文。"}]},
    ]
}
# What is said, and all rows that the answer takes on the screen, of which the last is its last.
PLAN = [
    "A plan for the release",
    "Some bold text, emphasis and inline code with a link (https://example.org/docs).",
    "1. Read the whole file",
    "2. Change the function f",
    "- keep its name",
    "add a test",
    "Value of it",
    "another one",
    "def f(x: int) -> int:",
    "    return x + 1  # add one",
    "a quotation of somebody",
    "The very last sentence, which ends it.",
]
LOOKS: list[tuple[list[str], list[str]]] = [
    (["Say done"], ["Say done", "     done"]),
    (["A plan please"], PLAN),
    (["A command please"], ["It is short:", "git status --short", "make check"]),
    (["A long story please"], ["Paragraph 37", "Paragraph 38", "Paragraph 39", "up to 39."]),
    (["Use tools please"], ["first line", "second line", "Read README.md", "Both tools have run, and that is all."]),
    (["In Japanese please"], [JAPANESE, "最後の文。"]),
    # An answer that has stood on the screen before.
    (["Say done", "Say done"], ["     done", "Say done", "     done"]),
]
RUNS, AT_ONCE, BUSY = repetitions(4, 30), 3, 2


@contextmanager
def a_busy_machine() -> Generator[None]:
    """With processes that take all the time that they get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def in_order(text: str, rows: list[str]) -> bool:
    return re.search(".*".join(map(re.escape, rows)), text, re.DOTALL) is not None


def text_of_picture(answer: dict[str, Any]) -> str:
    """Return the rows of a picture in SVG, with each text in the column in which it is drawn."""
    rows: dict[int, tuple[str, int]] = {}
    for text in ElementTree.fromstring(base64.b64decode(answer["data"])).iter("{http://www.w3.org/2000/svg}text"):
        column, row = int(text.attrib["x"]) // CELL_WIDTH, int(text.attrib["y"]) // CELL_HEIGHT
        before, end = rows.get(row, ("", 0))
        drawn = before + " " * (column - end) + (text.text or "")
        rows[row] = (drawn, column + int(text.attrib["textLength"]) // CELL_WIDTH)
    return "\n".join(rows[row][0] if row in rows else "" for row in range(answer["rows"]))


async def first_look(system: FullSystem, path: Path, number: int) -> None:
    said, expected = LOOKS[number % len(LOOKS)]
    made = await system.rest("POST", "/api/sessions", {"directory": str(path), "title": f"look {number}"})
    session = f"/api/sessions/{made['id']}"
    for content in said:
        turn = await system.rest("POST", f"{session}/messages", {"content": content, "timeout": 600_000})
        assert turn["status"] == "finished", turn
    # Every second time it is a picture, whose text is read as well.
    picture = number % 2 == 1
    look = f"{session}/{'screenshot?format=svg&json=true' if picture else 'screen?colours=true'}"
    first = await system.rest("GET", look)
    assert (first["source"], first["note"]) == ("terminal", None), first
    text = text_of_picture(first) if picture else first["text"]
    assert in_order(text, expected), f"{expected} are not all on it:\n{text}"
    # Whatever was still to be drawn would be drawn meanwhile, and the second look would differ in a letter or a colour.
    await system.rest("POST", f"{session}/wait", {"for": "screen", "pattern": "not there", "timeout": 1500})
    later = await system.rest("GET", f"{session}/screen")
    assert in_order(later["text"], expected), f"{expected} are not all on it:\n{later['text']}"
    assert later["regions"]["prompt"] is not None and later["regions"]["status"] is not None, later["text"]
    assert await system.rest("GET", look) == first, f"the first look was half-drawn:\n{text}"
    await system.rest("DELETE", session)


@soak
@requirement("term.first.complete")
async def test_first_looks_on_a_busy_machine_show_all_that_was_said_last_every_time() -> None:
    app = make_repository(Path(os.environ["HOME"]) / "src" / "app", {"README.md": "# The app\n"})
    async with start_system(SCRIPT, app) as system:
        path = Path((await system.create("fix"))["path"])
        numbers, complete = iter(range(RUNS)), list[int]()

        async def look() -> None:
            for number in numbers:
                await first_look(system, path, number)
                complete.append(number)

        with a_busy_machine():
            async with asyncio.TaskGroup() as lookers:
                for _ in range(AT_ONCE):
                    lookers.create_task(look())
        assert sorted(complete) == list(range(RUNS))
