"""Tells how the start of an agent or an install goes, while the daemon's answer is waited for."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rookery.cli.failure import Failure
from rookery.cli.ws_names import Known, Record
from rookery.cli.ws_watch import Narration, Watch

# A start may bring OpenCode first, 180 MB over the network; the daemon ends what takes longer.
PATIENT = 1900.0


@contextmanager
def telling(known: Known, one: Record | None = None, *, silent: bool = False) -> Generator[None]:
    """Around a call about the agent of one workspace, or about the OpenCode of all."""
    if silent:
        yield
        return
    narration = Narration()
    # One that is on its way already may say nothing new for long.
    if one is not None and (text := progress(one)):
        narration.tell(text, text)
    with Watch(start=known.start) as watch:
        listener = threading.Thread(target=_listen, args=(watch, one, narration), daemon=True)
        listener.start()
        try:
            yield
        finally:
            watch.end()
            listener.join()
            narration.end()


def _listen(watch: Watch, one: Record | None, narration: Narration) -> None:
    try:
        for kind, told in watch.every() if one is None else watch.about(one["project"], one["name"]):
            if kind == "agent.installing" and one is None:
                narration.tell(told["text"], told["text"])
            elif kind == "agent.state" and one is not None and (text := progress(told)):
                narration.tell(text, text)
    except Failure:
        return  # whoever waits for the answer tells


def progress(told: dict[str, Any]) -> str:
    """What an agent that is on its way waits for; nothing if it is not."""
    agent = told["agent"]
    if agent["state"] not in ("starting", "restarting"):
        return ""
    return f"{agent['detail'] or 'its agent starts'} ..."
