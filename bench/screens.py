"""Screens: waiting for a toast on the screen, against OpenCode's own drawing; and a picture, against a plain loop.

`toast.ratio`: a client waits for a text on the screen of a session, and gets its response when Rookery has read the
text there. OpenCode's interface, on a plain terminal beside it, has drawn the same toast when the text is in its
output. Both times are counted from the request for the toast.

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
from .session_bench import SessionBench, start_session_bench

# Each text that was drawn, and when.
Drawn: TypeAlias = "queue.Queue[tuple[str, int]]"

WANTED = {"toast.ratio": 1.5, "png.cpu": 1.5}

_ROUNDS = 20
_PEERS = Path(__file__).parent / "peers"
_FONT = Path(__file__).parents[1] / "src" / "rookery" / "sessions" / "fonts" / "DejaVuSansMono.ttf"
# The two sets share no letter, because cells that are equal on two screens are not drawn again. Capitals, since escape
# sequences for colours end in a small letter.
_LETTERS = ("ABCDEFGHIJKLM", "NOPQRSTUVWXYZ")
_LENGTH = 16
_SECONDS = 60.0
_TRIES = 20
# About the duration of drawing a picture.
_RESTS = 0.02
_SCRIPT = {"turn": [{"when": "hello", "step": [{"say": "Good morning."}]}]}


def run() -> list[Bar]:
    figures: dict[str, float | None] = {"toast.ratio": None, "png.cpu": _png()}
    try:
        opencode = installed_opencode()
    except NotInstalled as error:
        print(f"screens: {error}", flush=True)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder,
            start_session_bench(opencode, Path(folder).resolve(), _SCRIPT) as bench,
        ):
            figures["toast.ratio"] = _toast(bench, opencode)
    return [Bar(f"screens.{name}", figures[name], "<=", wanted) for name, wanted in WANTED.items()]


# ---- a toast, against OpenCode's own drawing


def _toast(bench: SessionBench, opencode: Path) -> float:
    session = bench.session()
    shown = bench.api.ask("GET", f"/api/sessions/{session}/screen?columns=120&rows=40")
    if shown["source"] != "terminal":
        raise RuntimeError(f"there is no terminal: {shown['note']}")
    pattern = "|".join(f"[{letters}]{{{_LENGTH}}}" for letters in _LETTERS)
    argv = [_PEERS / "plain_terminal.py", opencode, f"http://127.0.0.1:{bench.agent.port}", session, pattern]
    with _plain_terminal([str(word) for word in argv], _interface(bench)) as drawn:
        words = _words()
        _warm_up(bench, words, drawn)
        results = [_round(bench, session, next(words), drawn) for _ in range(_ROUNDS)]
    return ratio(results, "wait", "interface", "seconds")


@contextlib.contextmanager
def _plain_terminal(words: list[str], env: Mapping[str, str]) -> Generator[Drawn]:
    """Run the interface, and yield the queue of drawn texts once its prompt is drawn."""
    drawn: Drawn = queue.Queue()
    with subprocess.Popen(
        [sys.executable, *words], env=os.environ | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        output = process.stdout

        def follow() -> None:
            for line in output:
                text, _, at = line.partition(" ")
                drawn.put((text, int(at)))

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            _drawn(drawn, "ready")
            yield drawn
        finally:
            # This ends its interface first.
            process.stdin.close()
            process.wait(_SECONDS)
            thread.join()


def _interface(bench: SessionBench) -> dict[str, str]:
    """Return the environment that an interface of the agent needs in addition to the bench's own."""
    (agent,) = (child for child in psutil.Process(bench.pid).children() if "serve" in child.cmdline())
    prefixes = ("HOME", "XDG_", "OPENCODE_SERVER_PASSWORD", "OPENCODE_DISABLE_")
    own = {name: value for name, value in agent.environ().items() if name.startswith(prefixes)}
    return {**own, "TERM": "xterm-256color", "COLORTERM": "truecolor", "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}


def _warm_up(bench: SessionBench, words: Iterator[str], drawn: Drawn) -> None:
    """Show toasts until one is drawn: an interface with a prompt may still miss the first ones."""
    for word in itertools.islice(words, _TRIES):
        _show(bench, word)
        with contextlib.suppress(queue.Empty):
            _drawn(drawn, word, 3.0)
            return
    raise RuntimeError("the interface draws no toast")


def _show(bench: SessionBench, word: str) -> None:
    bench.agent.ask("POST", bench.at("/tui/show-toast"), {"message": word, "variant": "info", "duration": 5000})


def _words() -> Iterator[str]:
    for letters in itertools.cycle(_LETTERS):
        yield "".join(random.choices(letters, k=_LENGTH))


def _round(bench: SessionBench, session: str, word: str, drawn: Drawn) -> dict[str, Sample]:
    matched_at: list[int] = []

    def wait() -> None:
        query = {"for": "screen", "pattern": word, "timeout": _SECONDS * 1000}
        if bench.api.ask("POST", f"/api/sessions/{session}/wait", query)["found"]:
            matched_at.append(time.monotonic_ns())

    waiting = threading.Thread(target=wait)
    waiting.start()
    # Let the wait begin first. The toast of the previous round may still be visible: the new one replaces it.
    time.sleep(0.5)
    began = time.monotonic_ns()
    _show(bench, word)
    at = _drawn(drawn, word)
    waiting.join(_SECONDS)
    if not matched_at:
        raise RuntimeError(f"the wait missed {word}")
    return {"wait": {"seconds": (matched_at[0] - began) / 1e9}, "interface": {"seconds": (at - began) / 1e9}}


def _drawn(drawn: Drawn, word: str, seconds: float = _SECONDS) -> int:
    while True:
        text, at = drawn.get(timeout=seconds)
        if text == word:
            return at


# ---- a picture, against a plain loop


def _png() -> float:
    screen = _screen()
    font = ImageFont.truetype(_FONT, FONT_SIZE)
    targets = {
        "library": lambda: _cpu(lambda: _plain(screen, font)),
        "png": lambda: _cpu(lambda: draw_picture(screen)),
    }
    cpu_ratio = ratio(take_turns(targets, rounds=_ROUNDS, repeats=3), "png", "library", "cpu")
    drawing, resting = (asyncio.run(_measure_blocking(shown)) * 1000 for shown in (screen, None))
    print(f"the loop is held for {drawing:.1f} ms at most while one is drawn, else for {resting:.1f} ms", flush=True)
    return cpu_ratio


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
    """Return a screen as full as a conversation with code: text in a few colours, and a box with its own background."""
    colours = [None, "#808080", "#9d7cd8", "#7fd88f", "#f5a742"]
    lines = [line for path in (_FONT.parent / "LICENSE.txt",) for line in path.read_text().split("\n") if line][:30]
    text_rows = [
        make_cells(f"   {line}"[:118], Style(colours[at % 5], bold=at % 7 == 0)) for at, line in enumerate(lines)
    ]
    box = [make_cells("┃" + "  Build · Scripted".ljust(118), Style("#5c9cf5", "#1e1e1e")) for _ in range(8)]
    return make_screen([*text_rows, [], *box], 120, 40)


async def _measure_blocking(screen: Screen | None) -> float:
    """Return the median of the longest times that the event loop was blocked while a picture, or nothing, was drawn."""
    tries: list[float] = []
    for _ in range(9):
        picture = asyncio.gather(draw_in_thread(screen) if screen is not None else asyncio.sleep(_RESTS))
        longest, last = 0.0, time.perf_counter()
        while not picture.done():
            await asyncio.sleep(0)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
        tries.append(longest)
    return median(tries)
