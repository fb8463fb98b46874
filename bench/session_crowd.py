"""Ten sessions in five workspaces at once: does each get its own responses, and how much does the daemon grow?"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from .session_bench import SECONDS, SessionBench

_WORKSPACES, _EACH, _TURNS = 5, 2, 20
# The first turns fill what is allocated once, such as the pool of connections.
_WARM_TURNS = 5

# The model replies with the folder of the session and with the message.
SCRIPT: dict[str, Any] = {
    "when": "crowd",
    "step": [
        {"call": "bash", "with": {"command": "pwd", "description": "where"}},
        {"say": "{{result}} received {{user}}"},
    ],
}


def crowd(bench: SessionBench) -> float:
    """Return by how many megabytes the daemon grows over all turns but the first ones."""
    folders = [bench.workspace(f"crowd-{number}") for number in range(_WORKSPACES)]
    sessions = [(bench.session(folder), folder) for folder in folders for _ in range(_EACH)]
    with ThreadPoolExecutor(2 * len(sessions)) as pool:

        def turn(session: str, folder: str, number: int) -> None:
            """Send a message while another client waits for the reply, too."""
            word = f"crowd-{session}-{number}-"
            waiting = pool.submit(_wait, bench, session, f"received {word}")
            reply = bench.api.ask("POST", f"/api/sessions/{session}/messages", {"content": word, "timeout": _MS})
            lines = reply["content"].split()
            if lines != [folder, "received", word]:
                raise RuntimeError(f"this is not the reply to {word} in {folder}: {reply}")
            waiting.result()

        def drive(numbers: range) -> None:
            for number in numbers:
                for done in [drivers.submit(turn, session, folder, number) for session, folder in sessions]:
                    done.result()

        with ThreadPoolExecutor(len(sessions)) as drivers:
            drive(range(_WARM_TURNS))
            before = psutil.Process(bench.pid).memory_info().rss
            drive(range(_WARM_TURNS, _TURNS))
            grown = (psutil.Process(bench.pid).memory_info().rss - before) / 1e6
    print(f"crowd: {len(sessions)} sessions, {_TURNS} turns each; {before / 1e6:.1f} MB, then {grown:+.2f}", flush=True)
    return grown


_MS = SECONDS * 1000


def _wait(bench: SessionBench, session: str, pattern: str) -> None:
    query = {"for": "message", "pattern": pattern, "role": "assistant", "timeout": _MS}
    if not (result := bench.api.ask("POST", f"/api/sessions/{session}/wait", query))["found"]:
        raise RuntimeError(f"a wait missed its message: {result}")
