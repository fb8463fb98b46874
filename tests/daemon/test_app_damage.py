"""Damaged, deleted or special files in the state folder, when the daemon starts and while it runs."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from rookery.system.fs.atomic import append_line
from rookery.system.fs.lock import FileLock
from rookery.system.process.table import find_marked
from rookery.upstreams.oauth.credentials import GrantStore, SignInTarget
from rookery.upstreams.oauth.messages import Grant
from tests.support.cli import workspaces as ws
from tests.support.daemon.events import Reader
from tests.support.daemon.process import ROOKERY, Daemon, alive, kill, rookery, up, wait_dead
from tests.support.opencode.home import OFFLINE, fetch_no_plugin_package
from tests.support.opencode.process import installed
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = requirement("house.start.damaged")

# Within this a daemon starts or refuses.
SECONDS = 10
# What a daemon that was in use has made, at the least.
EXPECTED = (
    *("daemon.json", "daemon.lock", "instances.json", "rookery.db", "rookery.sock", "token", "trash-age.json"),
    *(
        "approvals.seal",
        "audit.db",
        "audit.key",
        "pins.seal",
        "logs/daemon.jsonl",
        "logs/daemon.out",
        "logs/agents/*/*.log",
        "opencode/versions.json",
    ),
    *("projects/*/creating/*", "projects/*/deleting/*", "projects/*/restoring/*", "sign-in/*.json", "trash/*.json"),
)
UNPRIVILEGED = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()
START_DAEMONS = Path(__file__).parents[1] / "programs" / "start_daemons.py"


def _socket(path: Path) -> None:
    # A path of any length: the name of a socket may not be long.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "something").touch()


# How a file is replaced, given what it held.
CONTENT: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "garbled": lambda data: b"\xff\x00{[garbage" + bytes(range(256)),
    "nested": lambda data: b'{"a":' * 100_000,
    "nested in lists": lambda data: b"[" * 300_000,
}
SPECIAL: dict[str, Callable[[Path], None]] = {
    "folder": _folder,
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to nowhere": lambda path: path.symlink_to("/nowhere/at/all"),
    "socket": _socket,
}
DAMAGES = ["deleted", *CONTENT, *SPECIAL, "unreadable"]


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes() if path.is_file() else b"{}"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if how == "unreadable":
        path.chmod(0)
        return
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if how in CONTENT:
        path.write_bytes(CONTENT[how](data))
        path.chmod(0o600)
    elif how in SPECIAL:
        SPECIAL[how](path)


class Used:
    """The state folder of a daemon that was killed while it was in use, to be damaged again and again."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.state, self.kept = state, folder / "kept"
        self.config = Path.home() / ".config" / "rookery" / "config.toml"
        self.config.parent.mkdir(parents=True)
        self.config.touch()
        self._configured = self.config.read_bytes()
        agents = {"PATH": installed().search_path, "ROOKERY_AGENTS_VERSION": "path", **OFFLINE}
        fetch_no_plugin_package(Path.home() / ".config" / "opencode")
        up(env=agents)
        self.checkout = ws.app(folder / "app")
        for name in ("fix", "old"):
            ws.made(name, cwd=self.checkout)
        assert rookery("agent", "start", "fix", cwd=self.checkout, seconds=120).returncode == 0
        ws.ws("rm", "old", cwd=self.checkout)
        # The age of what is in the trash is saved at the end of a daemon.
        assert rookery("down").returncode == 0
        # What was under way when a daemon was killed; the next one ends it.
        self._journal: dict[Path, bytes] = {}
        for words, fault in (
            (("create", "more"), "begun"),
            (("rm", "fix"), "intended"),
            (("restore", "old"), "intended"),
        ):
            kind = {"rm": "delete"}.get(words[0], words[0])
            daemon = up(env={"ROOKERY_FAULT": f"{kind}.{fault}"})
            assert ws.run(*words, cwd=self.checkout).returncode != 0
            wait_dead(daemon.pid)
            self._journal |= {path: path.read_bytes() for path in state.glob("projects/*/*ing/*.json")}
        assert {path.parent.name for path in self._journal} == {"creating", "deleting", "restoring"}
        kill(up().pid)
        subject = SignInTarget("mine", "https://mine.example/mcp")
        client = {"client_id": "x"}
        GrantStore(state / "sign-in").put(
            subject, Grant(server=subject.url, issuer=subject.url, client=client, tokens={"access_token": "x"})
        )
        FileLock(state / "opencode" / "install.lock").acquire("test")
        (state / "plugins" / "boulder").mkdir(mode=0o700, parents=True, exist_ok=True)
        append_line(state / "plugins" / "boulder" / "audit.log", "test")
        (state / "rookery.sock").unlink()
        shutil.copytree(state, self.kept, symlinks=True)

    def files(self) -> list[Path]:
        """Every file of the state folder that is not a part of a workspace, and the folders that hold them."""
        skipped = {"workspaces", *(path.stem for path in (self.kept / "trash").glob("*.json"))}
        found = [self.kept / "rookery.sock"]
        waiting = [self.kept]
        while waiting:
            for path in sorted(waiting.pop().iterdir()):
                if path.name not in skipped and not path.name.endswith(".git"):
                    found.append(path)
                    waiting += [path] if path.is_dir() else []
        listed = {path.relative_to(self.kept) for path in found}
        return sorted(listed | {path.relative_to(self.state) for path in self._journal})

    def damage(self, path: Path, how: str) -> None:
        """Put all back as it was, and damage one file of it."""
        shutil.rmtree(self.state)
        shutil.copytree(self.kept, self.state, symlinks=True)
        _socket(self.state / "rookery.sock")
        if self.config.is_dir():
            shutil.rmtree(self.config)
        self.config.unlink(missing_ok=True)
        self.config.write_bytes(self._configured)
        if path in self._journal:
            path.write_bytes(self._journal[path])
        _damage(path, how)


@contextlib.contextmanager
def daemons(printed: Path) -> Generator[Callable[[], dict[str, Any]]]:
    """Yield what starts a daemon and returns what that came to. As root every file can be read; so not as root."""
    command = [*UNPRIVILEGED, sys.executable, "-P", str(START_DAEMONS), str(SECONDS), str(printed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        stdin, stdout = program.stdin, program.stdout

        def start() -> dict[str, Any]:
            stdin.write("\n")
            stdin.flush()
            return json.loads(stdout.readline())

        try:
            yield start
        finally:
            stdin.close()
            assert program.wait(SECONDS) == 0


def _daemons() -> list[int]:
    """The daemons of this test."""
    mark = os.environ["ROOKERY_SPAWN"]
    return [
        one.pid for one in find_marked(lambda marker: marker == mark) if "rookery.daemon" in " ".join(one.cmdline())
    ]


# Whose content nobody looks at: it is written over, appended to, or only there or not.
ANY_CONTENT = (
    *("daemon.lock", "rookery.sock", "logs/*", "opencode/install.lock", "opencode/listened/*"),
    *("opencode/rookery-mcp*.json", "plugins/*/audit.log"),
)
# What SQLite makes anew, or goes by as far as it is whole, as after a crash.
OF_SQLITE = ("rookery.db-wal", "rookery.db-shm", "audit.db-wal", "audit.db-shm")
# Of a folder these are one and the same.
SAME_FOR_FOLDERS = ("truncated", "garbled", "nested", "nested in lists", "folder")


def _is_named(name: str, how: str) -> bool:
    """Whether a start after this damage has to name the file."""
    if how == "deleted":
        return False
    if name == "rookery.sock":
        return how == "folder"  # all else is removed
    return how not in CONTENT or not any(fnmatch(name, pattern) for pattern in (*ANY_CONTENT, *OF_SQLITE))


def _wrong(used: Used, path: Path, how: str, came_to: dict[str, Any]) -> str:
    """What is wrong with what a damage has led to."""
    error, said = came_to["error"], "\n".join(came_to["told"])
    if came_to["hangs"]:
        return f"not within {SECONDS} s: {came_to['hangs']}"
    if error is not None:
        return "" if error["code"] and str(path) in error["message"] else f"refused for another reason: {error}"
    if (came_to["second"] or {}).get("code") != "already-running":
        return f"a second daemon: {came_to['second']}"
    begun_anew = f"{used.state / 'rookery.db'} was damaged" in said or (path.name, how) == ("rookery.db", "deleted")
    if [one["path"] for one in came_to["projects"]] != [str(used.checkout)] and not begun_anew:
        return f"other projects: {came_to['projects']}"
    if path.is_relative_to(used.state) and _is_named(str(path.relative_to(used.state)), how) and path.name not in said:
        return f"not named in {said!r}"
    return ""


@soak
@pytest.mark.timeout(1200)
def test_damage_to_any_file_leads_to_a_start_that_names_it_or_a_refusal(tmp_path: Path, state: Path) -> None:
    used = Used(tmp_path, state)
    names = [str(name) for name in used.files()]
    for pattern in (*EXPECTED, *ANY_CONTENT, *OF_SQLITE):
        assert any(fnmatch(name, pattern) for name in names), (pattern, names)
    folders = {name for name in names if (used.kept / name).is_dir()}
    # In the suite each file is damaged in a quarter of the ways, by turns; in the soak in all of them.
    step = repetitions(4, 1)
    cases = [
        (state / name, how)
        for (row, name), (column, how) in itertools.product(enumerate(names), enumerate(DAMAGES))
        if not (name in folders and how in SAME_FOR_FOLDERS) and (row + column) % step == 0
    ]
    # No settings are what a link to nowhere means; what is not TOML is told elsewhere.
    cases += [(used.config, how) for how in (*SPECIAL, "unreadable") if how != "link to nowhere"]
    wrong: list[object] = []
    printed = tmp_path / "printed"
    with daemons(printed) as start:
        for path, how in cases:
            used.damage(path, how)
            printed.write_text("")
            came_to = start()
            trace = "a traceback" if "Traceback" in printed.read_text() else ""
            if why := _wrong(used, path, how, came_to) or trace:
                wrong.append((str(path), how, why))
    assert not wrong, "\n".join(map(str, wrong))
    _check_command(used)


def _check_command(used: Used) -> None:
    """See that the command prints it; it uses the log and the output of the daemon before that one runs."""
    aside = ["logs/daemon.out", "logs/daemon.jsonl", "daemon.lock", "instances.json", "trash"]
    for how, names in (("pipe", ["logs"]), ("device", aside), ("unreadable", ["token"])):
        used.damage(used.state / names[0], how)
        for name in names[1:]:
            _damage(used.state / name, how)
        command = [*UNPRIVILEGED, ROOKERY, "up", "-d"]
        done = subprocess.run(
            command,
            cwd=used.checkout,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert all(str(used.state / name) in done.stderr for name in names), (how, names, done.stderr)
        assert "Traceback" not in done.stderr and len(_daemons()) == (done.returncode == 0), (how, names, done.stderr)
        assert (done.returncode == 0) == ("token" not in names), (how, names, done.stderr)
        for pid in _daemons():
            kill(pid)


# ---- while it runs


def _heard(daemon: Daemon, text: str) -> str:
    """Wait for a line of the log that has this text."""
    reader = Reader(daemon, "/api/logs?last=200")
    try:
        while event := reader.next():
            if text in event["data"].get("message", ""):
                return event["data"]["message"]
    finally:
        reader.close()
    raise AssertionError("the log ended")


@pytest.mark.parametrize("how", ["deleted", "garbled", "pipe"])
def test_a_running_daemon_puts_its_files_back_and_stays_the_only_one(daemon: Daemon, how: str) -> None:
    for name in ("daemon.lock", "rookery.sock", "daemon.json"):
        if how == "deleted":
            (daemon.state / name).unlink()
        else:
            _damage(daemon.state / "other", how)
            (daemon.state / "other").replace(daemon.state / name)
        assert "has been re" in _heard(daemon, f"{daemon.state / name} was")
    again = rookery("up", "-d")
    assert again.returncode == 0 and f"(pid {daemon.pid}, already running)" in again.stdout, again
    assert rookery("ws", "list").returncode == 0
    assert _daemons() == [daemon.pid]


def test_a_second_daemon_is_refused_although_the_lock_is_gone(daemon: Daemon) -> None:
    os.kill(daemon.pid, signal.SIGSTOP)  # so that it cannot put anything back
    try:
        (daemon.state / "daemon.lock").unlink()
        command = [sys.executable, "-P", "-m", "rookery.daemon", "serve"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0 and "already" in done.stderr and str(daemon.pid) in done.stderr
        assert alive(daemon.pid)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert "daemon.lock" in _heard(daemon, "has been recreated")
    assert rookery("status").returncode == 0


def test_a_daemon_whose_state_folder_is_deleted_stops(tmp_path: Path) -> None:
    first = up()
    first.state.rename(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    wait_dead(first.pid)
    assert not first.state.exists()
    second = up()
    assert second.pid != first.pid and _daemons() == [second.pid]
    assert ws.names(ws.app(tmp_path / "app")) == ["@main"]
    assert Daemon(second.state).refresh().pid == second.pid
    assert rookery("down").returncode == 0
    wait_dead(second.pid)


def test_a_daemon_whose_state_folder_is_another_daemons_stops_and_touches_nothing(tmp_path: Path) -> None:
    first = up()
    os.kill(first.pid, signal.SIGSTOP)
    first.state.rename(tmp_path / "gone")
    second = up()
    os.kill(first.pid, signal.SIGCONT)
    wait_dead(first.pid)
    assert second.pid != first.pid and _daemons() == [second.pid]
    # Nothing of the second one's was taken away by the end of the first.
    assert ws.names(ws.app(tmp_path / "app")) == ["@main"]
    assert Daemon(second.state).refresh().pid == second.pid
    (instance,) = json.loads((second.state / "instances.json").read_text())
    assert instance["pid"] == second.pid
    assert rookery("down").returncode == 0
    wait_dead(second.pid)


def test_down_ends_a_daemon_that_has_lost_its_files() -> None:
    daemon = up()
    os.kill(daemon.pid, signal.SIGSTOP)
    for name in ("daemon.lock", "rookery.sock", "daemon.json"):
        (daemon.state / name).unlink()
    with subprocess.Popen([ROOKERY, "down"], stderr=subprocess.PIPE, text=True) as down:
        assert down.stderr is not None and str(daemon.pid) in down.stderr.readline()
        os.kill(daemon.pid, signal.SIGCONT)
        assert down.wait(60) == 0
    wait_dead(daemon.pid)
