"""The stage: a toast seen on the screen against OpenCode's own drawing of it, and a picture against the library's own.

`toast.ratio`: a client waits for a text on the screen of a session. It is answered when Rookery has read it there;
and OpenCode's interface, on a plain terminal beside it, has drawn the same toast when that text is among its raw bytes.
Both times are from when the toast was asked for.

`png.cpu`: CPU of a PNG of 120 by 40 cells, against a plain loop on the same library that draws the background and the
character of each cell in the same font and saves the picture.
"""

import asyncio
import contextlib
import io
import itertools
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import psutil
from PIL import Image, ImageDraw, ImageFont

from rookery.sessions.drawing.picture import CELL_HEIGHT, CELL_WIDTH, FONT_SIZE, draw_in_thread, draw_picture
from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, DEFAULT_FOREGROUND, Screen, Style
from rookery.sessions.terminal.rendering import make_cells, make_screen

from .harness import Bar, Sample, ratio, take_turns
from .installs import NotInstalled, opencode as installed_opencode
from .session_stage import Stage, a_stage

# What was drawn, and when.
Drawn: TypeAlias = "queue.Queue[tuple[str, int]]"

WANTED = {"toast.ratio": 1.5, "png.cpu": 1.5}

_ROUNDS = 20
_PEERS = Path(__file__).parent / "peers"
_FONT = Path(__file__).parents[1] / "src" / "rookery" / "sessions" / "fonts" / "DejaVuSansMono.ttf"
# Made of letters that the one before has none of: what two screens have in common is not drawn again. Capitals, since
# what sets colours ends in a small letter.
_LETTERS = ("ABCDEFGHIJKLM", "NOPQRSTUVWXYZ")
_LENGTH = 16
_SECONDS = 60.0
_TRIES = 20
# About as long as a picture takes.
_RESTS = 0.02
_SCRIPT = {"turn": [{"when": "hello", "step": [{"say": "Good morning."}]}]}


def run() -> list[Bar]:
    found: dict[str, float | None] = {"toast.ratio": None, "png.cpu": _png()}
    try:
        opencode = installed_opencode()
    except NotInstalled as error:
        print(f"stage: {error}", flush=True)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder,
            a_stage(opencode, Path(folder).resolve(), _SCRIPT) as stage,
        ):
            found["toast.ratio"] = _toast(stage, opencode)
    return [Bar(f"stage.{name}", found[name], "<=", wanted) for name, wanted in WANTED.items()]


# ---- a toast, against the interface's own drawing of it


def _toast(stage: Stage, opencode: Path) -> float:
    session = stage.session()
    shown = stage.house.ask("GET", f"/api/sessions/{session}/screen?columns=120&rows=40")
    if shown["source"] != "terminal":
        raise RuntimeError(f"there is no terminal: {shown['note']}")
    pattern = "|".join(f"[{letters}]{{{_LENGTH}}}" for letters in _LETTERS)
    argv = [_PEERS / "plain_terminal.py", opencode, f"http://127.0.0.1:{stage.agent.port}", session, pattern]
    with _plain_terminal([str(one) for one in argv], _interface(stage)) as drawn_there:
        words = _words()
        _warm_up(stage, words, drawn_there)
        taken = [_round(stage, session, next(words), drawn_there) for _ in range(_ROUNDS)]
    return ratio(taken, "wait", "interface", "seconds")


@contextlib.contextmanager
def _plain_terminal(words: list[str], env: Mapping[str, str]) -> Generator[Drawn]:
    """What it has drawn, from when its prompt is there."""
    drawn_there: Drawn = queue.Queue()
    with subprocess.Popen(
        [sys.executable, *words], env=os.environ | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        told = process.stdout

        def follow() -> None:
            for line in told:
                text, _, at = line.partition(" ")
                drawn_there.put((text, int(at)))

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            _drawn(drawn_there, "ready")
            yield drawn_there
        finally:
            # It ends its interface first.
            process.stdin.close()
            process.wait(_SECONDS)
            thread.join()


def _interface(stage: Stage) -> dict[str, str]:
    """The environment that an interface of the agent needs, beside the bench's own."""
    (agent,) = (one for one in psutil.Process(stage.pid).children() if "serve" in one.cmdline())
    kept = ("HOME", "XDG_", "OPENCODE_SERVER_PASSWORD", "OPENCODE_DISABLE_")
    own = {name: value for name, value in agent.environ().items() if name.startswith(kept)}
    return {**own, "TERM": "xterm-256color", "COLORTERM": "truecolor", "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}


def _warm_up(stage: Stage, words: Iterator[str], drawn_there: Drawn) -> None:
    """An interface whose prompt is there may still miss a toast."""
    for word in itertools.islice(words, _TRIES):
        _show(stage, word)
        with contextlib.suppress(queue.Empty):
            _drawn(drawn_there, word, 3.0)
            return
    raise RuntimeError("the interface draws no toast")


def _show(stage: Stage, word: str) -> None:
    stage.agent.ask("POST", stage.at("/tui/show-toast"), {"message": word, "variant": "info", "duration": 5000})


def _words() -> Iterator[str]:
    for letters in itertools.cycle(_LETTERS):
        yield "".join(random.choices(letters, k=_LENGTH))


def _round(stage: Stage, session: str, word: str, drawn_there: Drawn) -> dict[str, Sample]:
    seen: list[int] = []

    def wait() -> None:
        asked = {"for": "screen", "pattern": word, "timeout": _SECONDS * 1000}
        if stage.house.ask("POST", f"/api/sessions/{session}/wait", asked)["found"]:
            seen.append(time.monotonic_ns())

    waiting = threading.Thread(target=wait)
    waiting.start()
    # Until the wait has begun. The toast of the round before may still be there: the new one takes its place.
    time.sleep(0.5)
    began = time.monotonic_ns()
    _show(stage, word)
    at = _drawn(drawn_there, word)
    waiting.join(_SECONDS)
    if not seen:
        raise RuntimeError(f"the wait missed {word}")
    return {"wait": {"seconds": (seen[0] - began) / 1e9}, "interface": {"seconds": (at - began) / 1e9}}


def _drawn(drawn_there: Drawn, word: str, seconds: float = _SECONDS) -> int:
    while True:
        text, at = drawn_there.get(timeout=seconds)
        if text == word:
            return at


# ---- a picture, against the drawing library's own


def _png() -> float:
    screen = _screen()
    font = ImageFont.truetype(_FONT, FONT_SIZE)
    targets = {
        "library": lambda: _cpu(lambda: _plain(screen, font)),
        "png": lambda: _cpu(lambda: draw_picture(screen)),
    }
    found = ratio(take_turns(targets, rounds=_ROUNDS, repeats=3), "png", "library", "cpu")
    drawing, resting = (asyncio.run(_held(one)) * 1000 for one in (screen, None))
    print(f"the loop is held for {drawing:.1f} ms at most while one is drawn, else for {resting:.1f} ms", flush=True)
    return found


def _cpu(do: Any) -> Sample:
    began = time.process_time()
    do()
    return {"cpu": time.process_time() - began}


def _plain(screen: Screen, font: ImageFont.FreeTypeFont) -> bytes:
    image = Image.new("RGB", (screen.columns * CELL_WIDTH, screen.rows * CELL_HEIGHT), DEFAULT_BACKGROUND)
    pen = ImageDraw.Draw(image)
    for row, cells in enumerate(screen.cells):
        column = 0
        for cell in cells:
            left, top = column * CELL_WIDTH, row * CELL_HEIGHT
            right = left + cell.width * CELL_WIDTH - 1
            pen.rectangle((left, top, right, top + CELL_HEIGHT - 1), cell.style.background or DEFAULT_BACKGROUND)
            if cell.text != " ":
                pen.text((left, top), cell.text, cell.style.foreground or DEFAULT_FOREGROUND, font)
            column += cell.width
    made = io.BytesIO()
    image.save(made, "PNG")
    return made.getvalue()


def _screen() -> Screen:
    """As full as a conversation with some code in it: text in a few colours, a box with a background of its own."""
    colours = [None, "#808080", "#9d7cd8", "#7fd88f", "#f5a742"]
    lines = [line for path in (_FONT.parent / "LICENSE.txt",) for line in path.read_text().split("\n") if line][:30]
    said = [make_cells(f"   {line}"[:118], Style(colours[at % 5], bold=at % 7 == 0)) for at, line in enumerate(lines)]
    box = [make_cells("┃" + "  Build · Scripted".ljust(118), Style("#5c9cf5", "#1e1e1e")) for _ in range(8)]
    return make_screen([*said, [], *box], 120, 40)


async def _held(screen: Screen | None) -> float:
    """The longest time that the loop did not come round while a picture, or nothing, was drawn; the median."""
    tries: list[float] = []
    for _ in range(9):
        picture = asyncio.gather(draw_in_thread(screen) if screen is not None else asyncio.sleep(_RESTS))
        longest, last = 0.0, time.perf_counter()
        while not picture.done():
            await asyncio.sleep(0)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
        tries.append(longest)
    return median(tries)
