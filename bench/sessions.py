"""Sessions through Rookery against OpenCode's own API: a tool by its name, a wait, a long conversation, and many."""

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeAlias

from .harness import Bar, Sample, ratio, take_turns
from .installs import NotInstalled, opencode as installed_opencode
from .session_crowd import SCRIPT, crowd
from .session_stage import SECONDS, Face, Stage, a_stage

# What was said, and when it was heard.
Heard: TypeAlias = "queue.Queue[tuple[str, int]]"

WANTED = {"execute.seconds": 1.5, "wait.p99": 2.0, "messages.seconds": 0.1, "crowd.memory.mb": 5.0}

_ROUNDS = 30
_BUSY, _TURNS, _WARM_ROUNDS, _WAIT_ROUNDS = 10, 20, 2, 7
_MESSAGES = 1_000
_ANSWER = "answer-busy-[0-9]+-[0-9]+-"
_READER, _WAITER = (Path(__file__).parent / "peers" / name for name in ("event_reader.py", "waiting_client.py"))


def run() -> list[Bar]:
    try:
        opencode = installed_opencode()
    except NotInstalled as error:
        print(f"sessions: {error}", flush=True)
        return [Bar(f"sessions.{name}", None, "<=", wanted) for name, wanted in WANTED.items()]
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        file = str(Path(folder).resolve() / "app" / "README.md")
        with a_stage(opencode, Path(folder).resolve(), _script(file)) as stage:
            found = {
                "execute.seconds": _execute(stage, file),
                "wait.p99": _wait(stage),
                "messages.seconds": _messages(stage),
                "crowd.memory.mb": crowd(stage),
            }
    return [Bar(f"sessions.{name}", found[name], "<=", wanted) for name, wanted in WANTED.items()]


def _script(file: str) -> dict[str, Any]:
    read = {"call": "read", "with": {"filePath": file}}
    return {
        "turn": [
            {"when": "read", "step": [read, {"say": "done"}]},
            {"when": "busy", "step": [read, {"say": "answer-{{user}}"}]},
            SCRIPT,
        ]
    }


def _timed(stage: Stage, do: Any) -> Sample:
    began = time.perf_counter()
    do()
    took = time.perf_counter() - began
    # What is still going on behind an answer must not meet the next one.
    stage.rest()
    return {"seconds": took}


# ---- a tool by its name, against the same call in a turn of a model


def _execute(stage: Stage, file: str) -> float:
    session, other = stage.session(), stage.session()
    said = {"parts": [{"type": "text", "text": "read"}]}
    asked = {"tool": "read", "args": {"filePath": file}}
    targets = {
        "turn": lambda: _timed(stage, lambda: stage.agent.ask("POST", stage.at(f"/session/{other}/message"), said)),
        "execute": lambda: _timed(stage, lambda: stage.house.ask("POST", f"/api/sessions/{session}/tools", asked)),
    }
    return ratio(take_turns(targets, rounds=_ROUNDS), "execute", "turn", "seconds")


# ---- a wait, against a second reader of OpenCode's events


def _wait(stage: Stage) -> float:
    """How long after a plain reader had the event the wait was answered, against how far two readers are apart.

    The median of rounds with sessions of their own, behind some to warm up: the second worst of 200 says little by
    itself, and where OpenCode itself stops for a moment, all of them are late.
    """
    for _ in range(_WARM_ROUNDS):
        _waited_and_read(stage)
    found: list[float] = []
    for _ in range(_WAIT_ROUNDS):
        one, two, answered = _waited_and_read(stage)
        waits = [max(at - one[word], 0) for word, at in answered.items()]
        found.append(_p99("wait", waits) / _p99("two readers", [abs(one[word] - two[word]) for word in answered]))
    return median(found)


def _waited_and_read(stage: Stage) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """When two readers had each event, and when the wait for it was answered.

    All three are processes of their own that do nothing else, so that none of them waits for this one.
    """
    agent, house = stage.agent, stage.house
    listening = [_READER, agent.port, stage.at("/event"), _ANSWER]
    with (
        _peer(agent, *listening) as (first, _),
        _peer(agent, *listening) as (second, _),
        _peer(house, _WAITER, house.port) as (answers, ask),
        ThreadPoolExecutor(_BUSY) as pool,
    ):
        waiting: dict[str, threading.Event] = {}
        sessions = [stage.session() for _ in range(_BUSY)]

        def drive(number: int) -> None:
            session = sessions[number]
            for turn in range(_TURNS):
                word = f"busy-{number}-{turn}-"
                done = waiting[f"answer-{word}"] = threading.Event()
                said = {"parts": [{"type": "text", "text": word}]}
                stage.agent.ask("POST", stage.at(f"/session/{session}/prompt_async"), said)
                ask(f"{session} answer-{word}")
                if not done.wait(SECONDS):
                    raise RuntimeError(f"nobody answered the wait for {word}")

        driven = [pool.submit(drive, number) for number in range(_BUSY)]
        answered: dict[str, int] = {}
        for _ in range(_BUSY * _TURNS):
            word, at = answers.get(timeout=SECONDS)
            answered[word] = at
            waiting[word].set()
        for done in driven:
            done.result()
        one, two = (_heard(reader, len(answered)) for reader in (first, second))
    return one, two, answered


@contextlib.contextmanager
def _peer(face: Face, *words: object) -> Generator[tuple[Heard, Callable[[str], None]]]:
    """What a plain program of `peers/` hears, from when it is ready, and how it is told something."""
    env = os.environ | {"AUTHORIZATION": face.headers["Authorization"]}
    heard: Heard = queue.Queue()
    argv = [sys.executable, *(str(word) for word in words)]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        given, told = process.stdin, process.stdout

        def follow() -> None:
            for line in told:
                word, _, at = line.partition(" ")
                heard.put((word, int(at)))

        def tell(line: str) -> None:
            given.write(f"{line}\n")
            given.flush()

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            heard.get(timeout=SECONDS)
            yield heard, tell
        finally:
            process.kill()
            thread.join()


def _heard(reader: Heard, count: int) -> dict[str, int]:
    return dict(reader.get(timeout=SECONDS) for _ in range(count))


def _p99(name: str, nanoseconds: list[int]) -> float:
    cuts = quantiles(nanoseconds, n=100)
    print(f"{name}: p50 {cuts[49] / 1e6:.2f} ms, p99 {cuts[98] / 1e6:.2f} ms of {len(nanoseconds)}", flush=True)
    return cuts[98]


# ---- a long conversation, against OpenCode's own answer


def _messages(stage: Stage) -> float:
    session = stage.session()
    for number in range(_MESSAGES):
        said = {"parts": [{"type": "text", "text": f"message {number}"}], "noReply": True}
        stage.agent.ask("POST", stage.at(f"/session/{session}/message"), said)
    path = f"/api/sessions/{session}/messages?limit={_MESSAGES}"
    if len(stage.house.ask("GET", path)["messages"]) != _MESSAGES:
        raise RuntimeError("not all messages are told")
    targets = {
        "opencode": lambda: _timed(stage, lambda: stage.agent.raw("GET", stage.at(f"/session/{session}/message"))),
        "messages": lambda: _timed(stage, lambda: stage.house.raw("GET", path)),
    }
    return ratio(take_turns(targets, rounds=_ROUNDS), "messages", "opencode", "seconds")
