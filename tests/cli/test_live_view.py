"""`--watch` redraws on every change, and restores the terminal."""

import json
import os
import queue
import select
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

from tests.support.cli.user import TerminalUser, at_a_terminal
from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, rookery, up
from tests.support.requirements import requirement

pytestmark = [requirement("ws.list.watch"), pytest.mark.timeout(300)]

_EVENTS = "/api/events"


class Relay:
    """A proxy between a command and the daemon, which counts requests and can hold events back.

    Requests go to the daemon at `target`; a command uses the proxy if `state` is its state folder.
    """

    def __init__(self, target: Path, state: Path) -> None:
        self.state = state
        self._target = target
        self._requests = queue.Queue[str]()
        self._flows, self._held = threading.Event(), threading.Event()
        self._flows.set()
        self._sockets = list[socket.socket]()
        self._threads = list[threading.Thread]()

    def __enter__(self) -> Self:
        self.state.mkdir(mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.state / "rookery.sock"))
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flows.set()
        for each in [self._listener, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SECONDS)
        for each in [self._listener, *self._sockets]:
            each.close()

    def next(self, seconds: float = SECONDS) -> str | None:
        """Return the path of the next request, or None if none comes within the time."""
        try:
            return self._requests.get(timeout=seconds)
        except queue.Empty:
            return None

    def count(self, requests: int) -> Counter[str | None]:
        """Wait for so many requests, and return how often each path is among them."""
        return Counter(self.next() for _ in range(requests))

    def hold(self) -> None:
        """Hold events back from now on."""
        self._flows.clear()

    def held(self, seconds: float) -> bool:
        """Wait until an event is held back."""
        return self._held.wait(seconds)

    def release(self) -> None:
        self._flows.set()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                theirs.connect(str(self._target))
                self._sockets += [ours, theirs]
                self._start(self._serve, ours, theirs)

    def _serve(self, client: socket.socket, daemon: socket.socket) -> None:
        """Pass on one request, which has no body, and its answer."""
        with suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                data = client.recv(65_536)
                if not data:
                    return
                head += data
            path = head.split()[1].decode()
            self._requests.put(path)
            daemon.sendall(head)
            while data := daemon.recv(65_536):
                if path == _EVENTS and not self._flows.is_set():
                    self._held.set()
                    self._flows.wait()
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


LIST = ("ws", "list", "--watch")
STATUS = ("status", "--watch")
ALTERNATE_SCREEN = 1049
WORKSPACES = "/api/workspaces?status=true"
# Longer than whoever polls for a live view would wait.
QUIET_SECONDS = 3


def is_drawn_on_the_alternate_screen(person: TerminalUser) -> bool:
    return person.emulator._terminal.mode(ALTERNATE_SCREEN)


def watcher(person: TerminalUser) -> psutil.Process:
    """The process of the command."""
    (found,) = psutil.Process(person.shell).children()
    return found


def lines_of(text: str) -> list[str]:
    """The names in the first column, from top to bottom."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


@contextmanager
def watched(
    *words: str, cwd: Path, size: tuple[int, int] = (80, 24), env: Mapping[str, str] | None = None
) -> Generator[TerminalUser]:
    """A person who has something on the screen, and then watches."""
    script = 'trap : INT; printf "what stood there before\\n"; "$0" "$@"; code=$?; printf "and after\\n"; exit $code'
    argv = ["sh", "-c", script, str(ROOKERY), *words]
    with at_a_terminal(argv=argv, cwd=cwd, size=size, env=env) as person:
        yield person


def ends_as_it_was(person: TerminalUser, code: int) -> None:
    """The screen, its cursor and how the terminal is set are as before, and the command ends with `code`."""
    assert person.ends() == code, person.text
    assert person.settings == person.first_settings
    assert not is_drawn_on_the_alternate_screen(person)
    assert person.emulator.screen().cursor.visible
    assert lines_of(person.emulator.text) == ["what", "and"], person.emulator.text


def press_ctrl_c(person: TerminalUser) -> None:
    person.types("\x03")


def press_q(person: TerminalUser) -> None:
    person.types("q")


def terminate(person: TerminalUser) -> None:
    (command,) = watcher(person).children()
    command.terminate()


@pytest.mark.parametrize("words", [LIST, STATUS], ids=["ws list", "status"])
def test_changes_are_drawn_needy_first_and_the_terminal_is_left_as_it_was(
    daemon: Daemon, state: Path, words: tuple[str, ...]
) -> None:
    project = app(state / "src" / "app")
    made("alpha", cwd=project)
    zeta = made("zeta", cwd=project)
    with watched(*words, cwd=project) as person:
        text = person.sees(lambda text: "alpha" in text and "zeta" in text)
        assert is_drawn_on_the_alternate_screen(person) and not person.emulator.screen().cursor.visible
        assert lines_of(text).index("alpha") < lines_of(text).index("zeta")
        assert "what stood there" not in text

        # A change is drawn because an event tells of it.
        made("beta", cwd=project)
        person.sees(lambda text: "beta" in text)

        # Who needs the user moves to the top, and all of the reason is there, in lines that fill the screen's width.
        zeta.rename(state / "elsewhere")
        ws("meta", "set", "note", "x", "-w", "alpha", cwd=project)
        text = person.sees(lambda text: "missing" in text)
        shown = lines_of(text)
        assert shown.index("zeta") < shown.index("@main") < shown.index("alpha") < shown.index("beta")
        column = next(line for line in text.splitlines() if "NEEDS YOU" in line).index("NEEDS YOU")
        assert f"{zeta}doesnotexist" in "".join(line[column:].replace(" ", "") for line in text.splitlines())

        # A terminal of another size is filled anew.
        person.resizes(50, 16)
        text = person.sees(lambda text: "zeta" in text and "beta" in text)
        assert len(text.splitlines()) <= 16 and all(len(line) <= 50 for line in text.splitlines())
        press_ctrl_c(person)
        ends_as_it_was(person, 130)
    for end, code in ((press_q, 0), (terminate, 143)):
        with watched(*words, cwd=project) as person:
            person.sees(lambda text: "zeta" in text)
            end(person)
            ends_as_it_was(person, code)


def test_nothing_is_fetched_but_after_an_event(daemon: Daemon, state: Path) -> None:
    project = app(state / "src" / "app")
    made("alpha", cwd=project)
    with (
        Relay(state / "rookery.sock", state / "relay") as relay,
        watched(*LIST, cwd=project, env={"ROOKERY_HOME": str(relay.state)}) as lister,
        watched(*STATUS, cwd=project, env={"ROOKERY_HOME": str(relay.state)}) as overview,
    ):
        # Each fetches once to begin with, and once when it hears of events.
        assert relay.count(6) == {"/api/events": 2, WORKSPACES: 2, "/api/status": 2}
        for person in (lister, overview):
            person.sees(lambda text: "alpha" in text)
        # What the daemon tells does not arrive, so that nothing is fetched, however long the change is past.
        relay.hold()
        made("beta", cwd=project)
        assert relay.held(seconds=SECONDS)
        assert relay.next(seconds=QUIET_SECONDS) is None
        assert all("beta" not in person.emulator.text for person in (lister, overview))
        relay.release()
        for person in (lister, overview):
            person.sees(lambda text: "beta" in text)
            press_q(person)
            assert person.ends() == 0


@pytest.mark.parametrize("words", [LIST, STATUS], ids=["ws list", "status"])
def test_it_says_that_the_daemon_is_gone_and_goes_on_when_it_is_back(
    daemon: Daemon, state: Path, words: tuple[str, ...]
) -> None:
    project = app(state / "src" / "app")
    made("alpha", cwd=project)
    with watched(*words, cwd=project) as person:
        person.sees(lambda text: "alpha" in text)
        assert rookery("down").returncode == 0
        text = person.sees(lambda text: "the daemon has stopped" in text)
        assert "alpha" in text
        # Nobody starts it but the user.
        assert rookery("ws", "list", "--no-start").returncode == 5
        up()
        person.sees(lambda text: "the daemon has stopped" not in text and "alpha" in text)
        made("beta", cwd=project)
        person.sees(lambda text: "beta" in text)
        press_ctrl_c(person)
        ends_as_it_was(person, 130)


def test_a_burst_is_drawn_at_once_and_a_short_screen_tells_of_more(daemon: Daemon, state: Path) -> None:
    project = app(state / "src" / "app")
    for number in range(8):
        made(f"w{number}", cwd=project)
    with watched(*LIST, cwd=project, size=(80, 8)) as person:
        person.sees(lambda text: "more lines" in text)
        before = person.seen.count(b"\x1b[?2026h")
        command = watcher(person).children()[0]
        command.suspend()
        for number in range(20):
            ws("meta", "set", "note", str(number), "-w", "w0", cwd=project)
        command.resume()
        ws("rm", *(f"w{number}" for number in range(4, 8)), "--yes", cwd=project)
        person.sees(lambda text: "w3" in text and "more lines" not in text)
        assert person.seen.count(b"\x1b[?2026h") - before < 20
        press_q(person)
        assert person.ends() == 0


def test_ctrl_z_gives_the_terminal_back_and_the_view_returns(daemon: Daemon, state: Path) -> None:
    project = app(state / "src" / "app")
    made("alpha", cwd=project)
    # A shell with jobs, as people have it: it goes on when the command is stopped.
    script = 'set -m; "$0" "$@"; echo "it is stopped"; read go; fg >/dev/null; echo "it is over"'
    argv = ["bash", "-c", script, str(ROOKERY), *LIST]
    with at_a_terminal(argv=argv, cwd=project, size=(80, 24)) as person:
        person.sees(lambda text: "alpha" in text)
        person.types("\x1a")
        text = person.sees(lambda text: "it is stopped" in text)
        assert "alpha" not in text and person.emulator.screen().cursor.visible
        assert person.settings == person.first_settings
        person.types("\n")
        person.sees(lambda text: "alpha" in text and "it is stopped" not in text)
        press_q(person)
        person.sees(lambda text: "it is over" in text)
        assert person.ends() == 0 and person.settings == person.first_settings


@contextmanager
def piped(*words: str, cwd: Path) -> Generator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [ROOKERY, *words], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def next_line(process: "subprocess.Popen[bytes]") -> bytes:
    """The next line of its output, read without a buffer that would hide what comes behind it."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        assert ready, f"nothing came after {line!r}"
        data = os.read(process.stdout.fileno(), 1)
        assert data, "it has ended"
        line += data
    return line


def test_for_programs_every_change_is_a_line_and_it_ends_with_its_reader(daemon: Daemon, state: Path) -> None:
    project = app(state / "src" / "app")
    with piped(*LIST, "--json", cwd=project) as process:
        assert [one["name"] for one in json.loads(next_line(process))] == ["@main"]
        made("alpha", cwd=project)
        while [one["name"] for one in json.loads(next_line(process))] != ["@main", "alpha"]:
            pass
        assert process.stdout is not None
        process.stdout.close()
        # It is not found out with the next change, but at once.
        assert process.wait(SECONDS) == 141
    with piped(*STATUS, "--json", cwd=project) as process:
        first = json.loads(next_line(process))
        assert first["daemon"]["pid"] == daemon.pid and [one["name"] for one in first["workspaces"]] == [
            "@main",
            "alpha",
        ]
        process.terminate()
        assert process.wait(SECONDS) == 143
    with piped(*LIST, "--attention", cwd=project) as process:
        assert next_line(process) == b"nothing needs you\n"
        Path(ws("path", "alpha", cwd=project).strip()).rename(state / "elsewhere")
        made("beta", cwd=project)
        assert next_line(process) == b"\n" and b"NEEDS YOU" in next_line(process)
        assert next_line(process).startswith(b"alpha")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130


def test_what_is_wrong_at_the_beginning_is_told_as_ever(daemon: Daemon) -> None:
    assert rookery(*LIST, "--project", "nothing").returncode == 3
    assert rookery("down").returncode == 0
    assert rookery(*LIST, "--no-start").returncode == 5
    assert rookery(*STATUS, "--no-start").returncode == 5
    up()
