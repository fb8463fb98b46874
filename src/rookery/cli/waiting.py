"""A line with the seconds while an answer is waited for, so that a person sees that something goes on."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from rookery.cli.ws_watch import Narration

_OFTEN = 1.0


@contextmanager
def waiting(text: str, *, silent: bool = False, at_once: bool = False) -> Generator[None]:
    """Around a call that may take long.

    Of one that is quick nothing is told, nor where no person looks; unless it is to be told at once, and everywhere.
    """
    narration = Narration(silent=silent)
    if at_once:
        narration.tell(text, f"{text} ...")
    if silent or not narration.live:
        yield
        return
    over = threading.Event()
    ticking = threading.Thread(target=_tick, args=(over, narration, text), daemon=True)
    ticking.start()
    try:
        yield
    finally:
        over.set()
        ticking.join()
        narration.end()


def _tick(over: threading.Event, narration: Narration, text: str) -> None:
    seconds = 0
    while not over.wait(_OFTEN):
        seconds += 1
        narration.tell(text, f"{text} ... {seconds} s")
