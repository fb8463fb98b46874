"""A full disk, a read-only home and a missing permission: every command names the cause and the path."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.release import PINNED_VERSION
from tests.support.cli.commands import commands
from tests.support.cli.user import user_environment
from tests.support.daemon.process import ROOKERY
from tests.support.npm.registry import npm_registry
from tests.support.opencode.home import OFFLINE, no_plugin_package
from tests.support.opencode.process import installed
from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk, make_small_disk

pytestmark = [requirement("house.error.disk-full"), pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[1] / "programs" / "bad_disk.py"
SERVER = Path(__file__).parents[1] / "programs" / "odd_server.py"
UNPRIVILEGED = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()
SECONDS = 400
# Enough for an agent, until something fills it.
MEGABYTES = 64
CAUSES = {
    "full": re.compile(r"the disk is full|No space left on device"),
    "read-only": re.compile(r"the file system is read-only|Read-only file system"),
    "denied": re.compile(r"Permission denied"),
}
# What nobody should have to read.
RAW = re.compile(r"Traceback|ended with -|exit code -|signal \d|internal error|internal-error|see the daemon's log")

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
# A client that runs a just task.
TASK = "".join(
    f"{json.dumps({'jsonrpc': '2.0'} | message)}\n"
    for message in (
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "run_just_task", "arguments": {"task_name": "copy"}}},
    )
)


@dataclass(frozen=True)
class Command:
    """`code` is how it ends where nothing keeps it from its work; None for what has to fail and name the cause."""

    code: int | None = 0
    words: tuple[str, ...] = ()
    given: str = ""
    terminal: bool = False
    # Ends so without a daemon; None if it fails for want of one.
    alone: int | None = None


READS, WRITES = Command(), Command(None)
SESSION = Command(words=("{session}",))
MISSING = 3
# Each command, with a daemon that runs. What only reads goes on, and what writes says why it cannot.
COMMANDS: dict[str, Command] = {
    "up": Command(words=("-d",)),
    "down": Command(alone=0),
    "status": READS,
    "doctor": WRITES,
    "logs": Command(alone=3),
    # Another Rookery, in a folder of its own, which is on a disk that has room.
    "demo": Command(words=("--help",), alone=0),
    "project add": Command(words=("{disk}/app",)),
    "project list": READS,
    "project remove": Command(None, ("app",)),
    "ws create": Command(None, ("more",)),
    "ws list": READS,
    "ws show": Command(words=("fix",)),
    "ws path": Command(words=("fix",)),
    "ws open": Command(words=("fix",)),
    "ws close": Command(None, ("other",)),
    "ws dismiss": Command(words=("fix",)),
    "ws token": Command(words=("fix",)),
    "ws prepare": Command(None, ("fix",)),
    "ws diff": Command(words=("fix",)),
    "ws exec": Command(None, ("other", "--", "cp", "justfile", "{disk}/app/copied-by-exec")),
    "ws meta get": Command(MISSING, ("no-such-key", "--workspace", "fix")),
    "ws meta list": Command(words=("fix",)),
    "ws meta set": Command(None, ("key", "value", "--workspace", "fix")),
    "ws meta unset": Command(None, ("no-such-key", "--workspace", "fix")),
    "ws rm": Command(None, ("other", "--force")),
    "ws restore": Command(None, ("gone",)),
    "ws trash list": READS,
    "ws trash purge": Command(None, ("--all", "--yes")),
    "agent list": READS,
    "agent show": Command(words=("fix",)),
    "agent attach": Command(2, ("fix",), alone=2),
    "agent password": Command(words=("fix",)),
    "agent start": Command(None, ("other",)),
    "agent stop": Command(None, ("fix",)),
    "agent restart": Command(None, ("fix",)),
    "agent resume": Command(words=("fix",)),
    "agent logs": Command(words=("fix",)),
    "agent install": READS,
    "agent login": Command(2, alone=2),
    "session new": Command(None, ("fix",)),
    "session list": READS,
    "session show": SESSION,
    "session send": Command(None, ("{session}", "Hello.", "--timeout", "100")),
    "session messages": SESSION,
    "session wait": Command(words=("{session}", "--idle")),
    "session toasts": SESSION,
    "session screen": SESSION,
    "session asks": SESSION,
    "session answer": Command(MISSING, ("per_any", "once")),
    "session screenshot": Command(None, ("{session}", "--output", "{disk}/app/shot.png")),
    "session tool": Command(
        None, ("{session}", "bash", '{"command": "cp justfile $PWD/copied-by-tool", "description": "copy"}')
    ),
    "session history": SESSION,
    "session abort": SESSION,
    "session close": Command(None, ("{session}", "--delete")),
    "boulder budget": Command(None, ("{session}", "5")),
    "boulder log": SESSION,
    "boulder off": Command(None, ("--workspace", "fix")),
    "boulder on": Command(None, ("--workspace", "fix")),
    "boulder pause": Command(None, ("{session}",)),
    "boulder reset": Command(None, ("{session}",)),
    "boulder resume": Command(None, ("{session}",)),
    "boulder status": SESSION,
    "boulder stop": Command(None, ("{session}",)),
    "plugin action": Command(2, ("boulder", "no-such-action")),
    "plugin list": READS,
    "plugin state": Command(words=("boulder",)),
    "mcp add": Command(None, ("mine", "--global", "--no-check", "--", "true")),
    "mcp add-json": Command(None, ("mine", '{"command": "true"}', "--global", "--no-check")),
    "mcp call": Command(None, ("writer", "echo", "{}")),
    "mcp check": Command(None, ("writer",)),
    "mcp connect": Command(None, ("writer",)),
    "mcp debug": Command(None, ("writer",)),
    "mcp disable": Command(None, ("writer",)),
    "mcp disconnect": Command(words=("writer",)),
    "mcp enable": Command(None, ("writer",)),
    "mcp get": Command(words=("writer",)),
    "mcp list": READS,
    "mcp login": Command(1, ("writer",)),
    "mcp logout": Command(2, ("writer",)),
    "mcp remove": Command(None, ("writer", "--global")),
    "mcp tools": Command(None, ("writer",)),
    "guard approve": Command(MISSING, terminal=True),
    "guard audit": READS,
    "guard block": Command(MISSING, ("no-such-server",)),
    "guard check": Command(MISSING),
    "guard diff": READS,
    "guard digest": READS,
    "guard list": READS,
    "guard lock": Command(None, ("writer",)),
    "guard revoke": Command(None, ("justfile",)),
    "guard scan": READS,
    "guard trust": Command(MISSING, ("no-such-server", "--additions")),
    "client install": Command(None, ("cursor",)),
    "client print": Command(words=("claude-desktop", "--transport", "bridge"), alone=0),
    "bridge": Command(None, ("--workspace", "fix"), TASK),
    "model env": Command(None, ("{disk}/script.toml", "--log", "{disk}/new.jsonl")),
    "model serve": Command(None, ("{disk}/script.toml", "--log", "{disk}/new.jsonl")),
    "config get": Command(words=("auth",), alone=0),
    "config path": Command(alone=0),
    "config set": Command(None, ("log.level", "debug")),
    "config show": Command(alone=0),
    "completion": Command(words=("bash",), alone=0),
}
# Where one of the causes keeps a command from less than the others do, or from more.
# A daemon and an OpenCode that run go on with the files that they have open where no new one can be made.
OPEN_FILES: Mapping[str, int | None] = dict.fromkeys(
    (
        *("agent stop", "boulder budget", "boulder off", "boulder on", "boulder pause", "boulder reset"),
        *("boulder resume", "boulder stop", "mcp disable", "mcp enable", "session close", "session new"),
        *("session send", "ws close"),
    ),
    0,
) | {"scripted model": 1}
EXCEPTIONS: Mapping[str, Mapping[str, int | None]] = {"full": {}, "read-only": OPEN_FILES, "denied": OPEN_FILES}
# They end with 0 and tell of the failure of what they ran.
TELLING = ("bridge", "session tool")
# OpenCode deletes a session on a full disk if its database has pages to spare.
MAY_WORK = ("session close",)
# They change what others use.
LAST = (
    "ws rm",
    "ws trash purge",
    "session abort",
    "session close",
    "agent restart",
    "agent stop",
    "mcp disconnect",
    "mcp disable",
    "mcp enable",
    "mcp remove",
    "project remove",
    "down",
)


def run_on(disk: SmallDisk, cause: str, *, running: bool) -> list[Any]:
    """What each command came to: its name, its exit code, and what it printed."""
    jobs = {name: [name, [*name.split(), *one.words], one.given, one.terminal] for name, one in COMMANDS.items()}
    config = Path(".config") / "opencode"
    packages = {str(config / name): text for name, text in no_plugin_package().items()}
    asked = {
        "cause": cause,
        "running": running,
        "rookery": str(ROOKERY),
        "server": str(SERVER),
        "environment": {"PATH": installed().search_path, "ROOKERY_AGENTS_VERSION": "path", **OFFLINE},
        "files": packages,
        "config": {"autoupdate": False, "share": "disabled", "snapshot": False},
        "commands": [job for name, job in jobs.items() if name not in LAST],
        "last": [jobs[name] for name in LAST],
    }
    command = [*disk.words, sys.executable, "-P", str(PROGRAM), str(disk.folder)]
    done = subprocess.run(
        command,
        input=json.dumps(asked),
        # A daemon that is started by what Rookery started heeds no digest.
        env=user_environment(),
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_right(disk: SmallDisk, cause: str, found: list[Any], codes: dict[str, int | None]) -> None:
    faults = [
        f"{name} ended with {code}, {why}:\n{text}"
        for name, code, text in found
        if not (name in MAY_WORK and code == 0)
        and (why := wrong(codes[name], 1 if name in TELLING else code, text, cause, disk))
    ]
    assert not faults, "\n\n".join(faults)


def wrong(wanted: int | None, code: int | None, text: str, cause: str, disk: SmallDisk) -> str:
    """What is wrong with what a command came to."""
    if RAW.search(text):
        return "raw"
    named = any(CAUSES[cause].search(line) and str(disk.folder) in line for line in text.splitlines())
    if wanted is not None:
        return "" if code == wanted else f"ends with {code}"
    return "" if code and named else "does not name the cause and the path"


def test_all_commands_are_tried() -> None:
    assert sorted(" ".join(names) for names, _ in commands()) == sorted(COMMANDS)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_command_and_child_names_what_the_disk_keeps_it_from(state: Path, cause: str) -> None:
    disk = make_small_disk(state / "disk", MEGABYTES)
    found = run_on(disk, cause, running=True)
    assert len(found) == len(COMMANDS) + 1
    codes = {name: one.code for name, one in COMMANDS.items()} | {"scripted model": None} | dict(EXCEPTIONS[cause])
    assert_right(disk, cause, found, codes)


def test_every_command_that_needs_a_daemon_names_why_none_starts(state: Path) -> None:
    disk = make_small_disk(state / "disk", MEGABYTES)
    found = run_on(disk, "read-only", running=False)
    assert len(found) == len(COMMANDS)
    assert_right(disk, "read-only", found, {name: one.alone for name, one in COMMANDS.items()})


# A daemon that has run, and whose disk is full when it is started again.
AGAIN = """
import os, subprocess, sys
rookery, home = sys.argv[1:]
env = os.environ | {"ROOKERY_HOME": str(disk / "state"), "HOME": home}
def run(*words):
    return subprocess.run([rookery, *words], env=env, cwd=home, capture_output=True, text=True, timeout=50).stderr
run("up", "-d")
run("down")
for size in (65536, 4096, 1):
    with open(disk / f"filler{size}", "wb", 0) as file:
        try:
            while True:
                file.write(b"x" * size)
        except OSError:
            pass
print(run("up", "-d"))
"""


def test_a_daemon_that_finds_a_full_disk_names_only_that(state: Path) -> None:
    disk = make_small_disk(state / "disk", 8)
    told = [line for line in disk.run(AGAIN, str(ROOKERY), os.environ["HOME"]) if line]
    assert told[0] == "starting the daemon ..." and len(told) == 2, told
    assert told[1].startswith(f"rookery: the disk is full: {disk.folder}"), told


# Programs that the daemon starts at other times: OpenCode for its version, which maps files and so gets a signal; npm;
# and the process that signs in, whose result is kept.
CHILDREN = """
import asyncio, json, os, sys, tempfile
from rookery.agents.opencode.install import Installer
from rookery.agents.opencode.release import Machine
from rookery.agents.opencode.install import VersionCache as Versions
from rookery.system.errors import RookeryError
from rookery.system.process.spawn import Spawner
from rookery.upstreams.oauth.credentials import GrantStore as Grants, SignInTarget as Subject
from rookery.upstreams.oauth.helper import HelperProcess as Helper
from rookery.upstreams.oauth.messages import HelperRequest as Errand, Grant
from rookery.wire.http_client.proxy import ProxySettings

program, registry, elsewhere = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
home, closed = disk / "home", disk / "closed"
home.mkdir()
(disk / "sign-in").mkdir(mode=0o700)
closed.mkdir(mode=0)
environment = {"HOME": str(home), "TMPDIR": str(disk), "PATH": "/nowhere", "npm_config_registry": registry}
tempfile.tempdir = str(disk)
subject = Subject("far", "https://a.example/mcp")

async def failure(work):
    try:
        await work
    except RookeryError as error:
        print(json.dumps([error.code, error.message, error.remedy]), flush=True)
    else:
        print(json.dumps(["", "it did not fail", ""]), flush=True)

async def keep():
    grant = Grant(server=subject.url, issuer=subject.url, client={}, tokens={"access_token": "x" * 5000})
    Grants(disk / "sign-in").put(subject, grant)

async def main():
    spawner = Spawner("test")
    versions = Versions(Path("/nowhere"), spawner, environment)
    await failure(versions.run_version(program))
    (disk / "spare").write_bytes(b"x" * 300_000)
    for size in (65536, 4096, 1):
        with open(disk / f"filler{size}", "wb", 0) as file:
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    await failure(versions.run_version(program))
    await failure(keep())
    installer = Installer(disk, spawner, environment, Machine("linux", "x64"))
    await failure(installer.install())
    # Enough for the start of an install.
    (disk / "spare").unlink()
    await failure(installer.install())
    # npm ends with 0 if only the unpacked packages find no room.
    roomy = environment | {"HOME": elsewhere, "TMPDIR": elsewhere}
    await failure(Installer(disk, spawner, roomy, Machine("linux", "x64")).install())
    await failure(Helper(spawner, closed, ProxySettings()).run(Errand(mode="look", url=subject.url)))
    await spawner.stop_all()

asyncio.run(main())
"""


def test_other_programs_that_the_daemon_starts_are_explained_by_the_disk(small_disk: SmallDisk, tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\nkill -BUS $$\n")
    program.chmod(0o755)
    with npm_registry() as registry:
        registry.publish("opencode-linux-x64", PINNED_VERSION, {"bin/opencode": os.urandom(1_000_000).hex()})
        registry.publish("@vscode/ripgrep-linux-x64", "1.18.0", {"bin/rg": "x"})
        before, version, grant, install, npm, unpacking, helper = map(
            json.loads, small_disk.run(CHILDREN, str(program), registry.url, str(tmp_path), before=UNPRIVILEGED)
        )
    assert before[0] == version[0] == npm[0] == unpacking[0] == "agent-unavailable"
    assert "SIGBUS" in before[1] and "with -" not in before[1]
    assert f"the disk is full: {small_disk.folder}" in version[1] and "free some space" in version[2]
    assert f"the disk is full: {small_disk.folder}" in install[1] and "free some space" in install[2], install
    assert f"npm failed: the disk is full: {small_disk.folder}" in npm[1] and "free some space" in npm[2], npm
    assert f"npm failed: the disk is full: {small_disk.folder}" in unpacking[1], unpacking
    assert "free some space" in unpacking[2], unpacking
    assert f"the disk is full: {small_disk.folder / 'sign-in'}" in grant[1] and "free some space" in grant[2], grant
    assert f"Permission denied: {small_disk.folder / 'closed'}" in helper[1], helper
