"""Make the disk of a daemon fail, then run commands.

The only argument is the disk, a small file system in a separate mount namespace. stdin contains an object: `cause` is
how the disk fails (`full`, `read-only` or `denied`), `running` whether a daemon runs by then, `opencode` the PATH and
the config of the agents, `commands` the words of each command, its input and whether it needs a terminal. `{disk}`
and `{session}` stand for the disk and for a session. The result of each command is a line of JSON.
"""

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

DISK = Path(sys.argv[1])
ASKED: dict[str, Any] = json.load(sys.stdin)
HOME, STATE, APP = DISK / "home", DISK / "state", DISK / "app"
SECONDS = 120
# As root one may write everywhere.
PLAIN = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
ENVIRONMENT = (
    os.environ
    | {"HOME": str(HOME), "ROOKERY_HOME": str(STATE), "TMPDIR": str(DISK / "tmp"), "GIT_CONFIG_GLOBAL": os.devnull}
    | ASKED["environment"]
)
TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
SCRIPT = '[[turn]]\nwhen = {regex = "."}\n[[turn.step]]\nsay = "hello"\n'
# Writes a file, then serves.
SERVER = """
import runpy, sys
try:
    with open(sys.argv[1], "wb", 0) as file:
        while file.tell() < 100_000:
            file.write(b"x" * 10_000)
except OSError as error:
    sys.exit(str(error))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*words: str, given: str = "", terminal: bool = False) -> "subprocess.CompletedProcess[str]":
    before = [sys.executable, "-c", TERMINAL] if terminal else []
    return subprocess.run(
        [*PLAIN, *before, ASKED["rookery"], *words],
        env=ENVIRONMENT,
        cwd=APP,
        input=given,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
        check=False,
    )


def tell(came_to: list[Any]) -> None:
    # In one write, since several threads do so.
    os.write(1, f"{json.dumps(came_to)}\n".encode())


def must(*words: str) -> str:
    done = run(*words)
    assert done.returncode == 0, (words, done)
    return done.stdout


def git(*words: str) -> None:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words]
    subprocess.run(command, cwd=APP, env=ENVIRONMENT, check=True, capture_output=True, timeout=SECONDS)


def make_files() -> None:
    for folder in (HOME / ".config" / "opencode" / "node_modules", DISK / "tmp", APP):
        folder.mkdir(parents=True)
    files = {
        APP / ".rookery" / "config.toml": '[workspace]\nsetup = "cp justfile copied"\n',
        APP / ".gitignore": "copied*\n",
        APP / "justfile": "copy:\n  @cp justfile copied-by-task\n",
        DISK / "script.toml": SCRIPT,
        DISK / "server.py": SERVER,
        HOME / ".config" / "rookery" / "mcp.json": json.dumps(
            {
                "servers": {
                    "writer": {
                        "command": sys.executable,
                        "args": [str(DISK / "server.py"), str(DISK / "served"), ASKED["server"]],
                    }
                }
            }
        ),
        **{HOME / name: text for name, text in ASKED["files"].items()},
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git("init", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--message=first")


class Model:
    """The scripted model, whose log is on the disk."""

    def __init__(self) -> None:
        log = DISK / "requests.jsonl"
        command = [*PLAIN, ASKED["rookery"], "model", "serve", str(DISK / "script.toml"), f"--log={log}", "--json"]
        self.process = subprocess.Popen(command, env=ENVIRONMENT, cwd=DISK, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.about = json.loads(self.process.stdout.readline())

    def ask(self) -> str:
        body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "x" * 10_000}]}).encode()
        request = urllib.request.Request(
            f"{self.about['url']}/chat/completions", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()


def begin() -> str:
    """Use the daemon and an agent, and return a session."""
    must("up", "-d")
    # What it was set up with is not approved yet.
    run("ws", "create", "fix", "--no-agent")
    ENVIRONMENT["ROOKERY_APPROVE"] = must("guard", "digest", "--waiting")
    must("down")
    must("up", "-d")
    must("ws", "prepare", "fix")
    for name in ("other", "gone"):
        must("ws", "create", name, "--no-agent")
    must("ws", "rm", "gone")
    return json.loads(must("session", "new", "fix", "--json"))["id"]


def let_fail(cause: str) -> None:
    if cause == "full":
        for size in (65_536, 4_096, 1):
            with (DISK / f"filler{size}").open("wb", 0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    elif cause == "read-only":
        # On top of the disk, so that files that are open for writing do not keep it from being mounted.
        subprocess.run(["mount", "--bind", str(DISK), str(DISK)], check=True, timeout=SECONDS)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(DISK)], check=True, timeout=SECONDS)
    else:
        for path in sorted(DISK.rglob("*"), reverse=True):
            if not path.is_symlink() and (path.is_dir() or path.is_file()):
                path.chmod(path.stat().st_mode & 0o555)
        DISK.chmod(0o500)


def main() -> None:
    make_files()
    model = Model()
    try:
        config = HOME / ".config" / "opencode" / "opencode.json"
        config.write_text(json.dumps(ASKED["config"] | model.about["opencode"]))
        session = begin() if ASKED["running"] else "ses_any"
        let_fail(ASKED["cause"])

        if ASKED["running"]:
            tell(["scripted model", 1, model.ask()])

        def one(command: list[Any]) -> None:
            name, words, given, terminal = command
            words = [word.replace("{disk}", str(DISK)).replace("{session}", session) for word in words]
            try:
                done = run(*words, given=given, terminal=terminal)
            except subprocess.TimeoutExpired:
                tell([name, None, "it does not end"])
                return
            tell([name, done.returncode, done.stdout + done.stderr])

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            list(threads.map(one, ASKED["commands"]))
        for command in ASKED["last"]:
            one(command)
    finally:
        run("down")
        model.process.terminate()
        model.process.wait(SECONDS)


main()
