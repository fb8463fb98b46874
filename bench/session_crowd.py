"""Ten sessions in five workspaces, driven at once: whether each gets its own answers, and what the daemon keeps."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from .session_stage import SECONDS, Stage

_WORKSPACES, _EACH, _TURNS = 5, 2, 20
# The first turns fill what is kept once, such as the pool of connections.
_WARM_TURNS = 5

# Says where it is, and what it was told.
SCRIPT: dict[str, Any] = {
    "when": "crowd",
    "step": [
        {"call": "bash", "with": {"command": "pwd", "description": "where"}},
        {"say": "{{result}} heard {{user}}"},
    ],
}


def crowd(stage: Stage) -> float:
    """By how many megabytes the daemon grows over all turns but the first ones."""
    folders = [stage.workspace(f"crowd-{number}") for number in range(_WORKSPACES)]
    sessions = [(stage.session(folder), folder) for folder in folders for _ in range(_EACH)]
    with ThreadPoolExecutor(2 * len(sessions)) as pool:

        def turn(session: str, folder: str, number: int) -> None:
            """A message whose answer somebody else waits for, too."""
            word = f"crowd-{session}-{number}-"
            waiting = pool.submit(_wait, stage, session, f"heard {word}")
            said = stage.house.ask("POST", f"/api/sessions/{session}/messages", {"content": word, "timeout": _MS})
            lines = said["content"].split()
            if lines != [folder, "heard", word]:
                raise RuntimeError(f"this is no answer to {word} in {folder}: {said}")
            waiting.result()

        def drive(numbers: range) -> None:
            for number in numbers:
                for done in [drivers.submit(turn, *one, number) for one in sessions]:
                    done.result()

        with ThreadPoolExecutor(len(sessions)) as drivers:
            drive(range(_WARM_TURNS))
            before = psutil.Process(stage.pid).memory_info().rss
            drive(range(_WARM_TURNS, _TURNS))
            grown = (psutil.Process(stage.pid).memory_info().rss - before) / 1e6
    print(f"crowd: {len(sessions)} sessions, {_TURNS} turns each; {before / 1e6:.1f} MB, then {grown:+.2f}", flush=True)
    return grown


_MS = SECONDS * 1000


def _wait(stage: Stage, session: str, pattern: str) -> None:
    asked = {"for": "message", "pattern": pattern, "role": "assistant", "timeout": _MS}
    if not (found := stage.house.ask("POST", f"/api/sessions/{session}/wait", asked))["found"]:
        raise RuntimeError(f"a wait missed its message: {found}")
