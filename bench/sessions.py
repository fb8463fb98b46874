"""Sessions through Rookery against OpenCode's own API: a tool by name, a wait, a long conversation, many sessions."""

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
from .session_bench import SECONDS, ApiClient, SessionBench, start_session_bench
from .session_crowd import SCRIPT, crowd

# Each text that a process of `peers/` has received, and when.
Readings: TypeAlias = "queue.Queue[tuple[str, int]]"

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
        with start_session_bench(opencode, Path(folder).resolve(), _script(file)) as bench:
            figures = {
                "execute.seconds": _execute(bench, file),
                "wait.p99": _wait(bench),
                "messages.seconds": _messages(bench),
                "crowd.memory.mb": crowd(bench),
            }
    return [Bar(f"sessions.{name}", figures[name], "<=", wanted) for name, wanted in WANTED.items()]


def _script(file: str) -> dict[str, Any]:
    read = {"call": "read", "with": {"filePath": file}}
    return {
        "turn": [
            {"when": "read", "step": [read, {"say": "done"}]},
            {"when": "busy", "step": [read, {"say": "answer-{{user}}"}]},
            SCRIPT,
        ]
    }


def _timed(bench: SessionBench, do: Any) -> Sample:
    began = time.perf_counter()
    do()
    took = time.perf_counter() - began
    # Work that continues after a response must not affect the next sample.
    bench.rest()
    return {"seconds": took}


# ---- a tool by name, against the same call in a turn of a model


def _execute(bench: SessionBench, file: str) -> float:
    session, other = bench.session(), bench.session()
    message = {"parts": [{"type": "text", "text": "read"}]}
    query = {"tool": "read", "args": {"filePath": file}}
    targets = {
        "turn": lambda: _timed(bench, lambda: bench.agent.ask("POST", bench.at(f"/session/{other}/message"), message)),
        "execute": lambda: _timed(bench, lambda: bench.api.ask("POST", f"/api/sessions/{session}/tools", query)),
    }
    return ratio(take_turns(targets, rounds=_ROUNDS), "execute", "turn", "seconds")


# ---- a wait, against a second reader of OpenCode's events


def _wait(bench: SessionBench) -> float:
    """Compare how late a wait returns after a plain reader had the event with how far two readers are apart.

    Return the median of rounds with sessions of their own, after some to warm up: the second worst of 200 alone means
    little, and when OpenCode itself stops for a moment, all of them are late.
    """
    for _ in range(_WARM_ROUNDS):
        _waited_and_read(bench)
    ratios: list[float] = []
    for _ in range(_WAIT_ROUNDS):
        first, second, answered = _waited_and_read(bench)
        waits = [max(at - first[word], 0) for word, at in answered.items()]
        ratios.append(_p99("wait", waits) / _p99("two readers", [abs(first[word] - second[word]) for word in answered]))
    return median(ratios)


def _waited_and_read(bench: SessionBench) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return when two readers had each event, and when the wait for it returned.

    All three are separate processes that do nothing else, so that none of them waits for this one.
    """
    agent, api = bench.agent, bench.api
    listening = [_READER, agent.port, bench.at("/event"), _ANSWER]
    with (
        _peer(agent, *listening) as (first, _),
        _peer(agent, *listening) as (second, _),
        _peer(api, _WAITER, api.port) as (answers, ask),
        ThreadPoolExecutor(_BUSY) as pool,
    ):
        waiting: dict[str, threading.Event] = {}
        sessions = [bench.session() for _ in range(_BUSY)]

        def drive(number: int) -> None:
            session = sessions[number]
            for turn in range(_TURNS):
                word = f"busy-{number}-{turn}-"
                done = waiting[f"answer-{word}"] = threading.Event()
                message = {"parts": [{"type": "text", "text": word}]}
                bench.agent.ask("POST", bench.at(f"/session/{session}/prompt_async"), message)
                ask(f"{session} answer-{word}")
                if not done.wait(SECONDS):
                    raise RuntimeError(f"no response to the wait for {word}")

        driven = [pool.submit(drive, number) for number in range(_BUSY)]
        answered: dict[str, int] = {}
        for _ in range(_BUSY * _TURNS):
            word, at = answers.get(timeout=SECONDS)
            answered[word] = at
            waiting[word].set()
        for done in driven:
            done.result()
        first_read, second_read = (_collect(reader, len(answered)) for reader in (first, second))
    return first_read, second_read, answered


@contextlib.contextmanager
def _peer(api: ApiClient, *words: object) -> Generator[tuple[Readings, Callable[[str], None]]]:
    """Run a program of `peers/`. Yield its readings, once it is ready, and a function that sends a line to it."""
    env = os.environ | {"AUTHORIZATION": api.headers["Authorization"]}
    readings: Readings = queue.Queue()
    argv = [sys.executable, *(str(word) for word in words)]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def follow() -> None:
            for line in stdout:
                word, _, at = line.partition(" ")
                readings.put((word, int(at)))

        def send(line: str) -> None:
            stdin.write(f"{line}\n")
            stdin.flush()

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            readings.get(timeout=SECONDS)
            yield readings, send
        finally:
            process.kill()
            thread.join()


def _collect(reader: Readings, count: int) -> dict[str, int]:
    return dict(reader.get(timeout=SECONDS) for _ in range(count))


def _p99(name: str, nanoseconds: list[int]) -> float:
    cuts = quantiles(nanoseconds, n=100)
    print(f"{name}: p50 {cuts[49] / 1e6:.2f} ms, p99 {cuts[98] / 1e6:.2f} ms of {len(nanoseconds)}", flush=True)
    return cuts[98]


# ---- a long conversation, against OpenCode's own list


def _messages(bench: SessionBench) -> float:
    session = bench.session()
    for number in range(_MESSAGES):
        message = {"parts": [{"type": "text", "text": f"message {number}"}], "noReply": True}
        bench.agent.ask("POST", bench.at(f"/session/{session}/message"), message)
    path = f"/api/sessions/{session}/messages?limit={_MESSAGES}"
    if len(bench.api.ask("GET", path)["messages"]) != _MESSAGES:
        raise RuntimeError("not all messages are listed")
    targets = {
        "opencode": lambda: _timed(bench, lambda: bench.agent.raw("GET", bench.at(f"/session/{session}/message"))),
        "messages": lambda: _timed(bench, lambda: bench.api.raw("GET", path)),
    }
    return ratio(take_turns(targets, rounds=_ROUNDS), "messages", "opencode", "seconds")
