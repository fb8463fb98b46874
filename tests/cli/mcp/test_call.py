"""`rookery mcp call`: call a tool from the command line, over MCP."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.user import at_a_terminal, user
from tests.support.daemon.foreground import on_a_terminal, wait_for_line
from tests.support.daemon.process import ROOKERY, Daemon, rookery
from tests.support.mcp.client import PROGRAMS
from tests.support.requirements import requirement

SHOWY = [sys.executable, str(PROGRAMS / "showy_server.py")]
SDK = [sys.executable, str(PROGRAMS / "sdk_server.py"), "stdio"]
HOSTILE = ("\x1b", "\x07", "\x08", "\x9b", "\u202e", "\u200b", "\u2060")

pytestmark = requirement("hub.cli.verbs")


@pytest.fixture
def showy(daemon: Daemon) -> Daemon:
    define(showy={"command": SHOWY}, sdk={"command": SDK}, dead={"command": [*SHOWY, "--dies"]})
    return daemon


def define(**servers: Any) -> None:
    file = Path(os.environ["HOME"]) / ".config" / "rookery" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"servers": servers}))


def call(*words: str, given: str = "", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return user("mcp", "call", *words, given=given, cwd=cwd)


def test_text_is_printed_and_arguments_become_what_the_schema_wants(showy: Daemon) -> None:
    words = ["text=1", "number=2", "maybe=2.5", "flag=true", 'items=["x"]', "either=7", "colour=12", "loose=3"]
    done = call("showy", "kinds", *words, "region=Zürich", 'inner={"tenant": 5}', "unknown=a=b")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "text": "1",
        "number": 2,
        "maybe": 2.5,
        "flag": True,
        "items": ["x"],
        "either": "7",
        "colour": "12",
        "loose": 3,
        "region": "Zürich",
        "inner": {"tenant": 5},
        "unknown": "a=b",
    }
    for arguments, given in (('{"text": "x"}', ""), ("-", '{"text": "x"}')):
        assert json.loads(call("showy", "kinds", arguments, given=given).stdout) == {"text": "x"}
    assert call("showy", "kinds").stdout == "{}\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["showy", "kinds", "number=many"], 2, "number must be integer, not 'many'"),
        (["showy", "kinds", "nothing"], 2, "'nothing' is not key=value"),
        (["showy", "kinds", "{"], 2, "the arguments are not JSON"),
        (["showy", "kinds", "-"], 2, "the arguments are not JSON"),
        (["showy", "kind"], 3, "did you mean kinds?"),
        (["showy", "zzz"], 3, "see: rookery mcp tools showy"),
        (["nobody", "kinds"], 3, "there is no MCP server 'nobody'"),
        (["dead", "kinds"], 1, 'MCP server "dead" failed: '),
        (["showy", "refuses"], 1, "the call was refused: I refuse"),
        (["sdk", "elicit"], 1, "elicit"),
    ],
)
def test_what_cannot_be_called_is_told(showy: Daemon, words: list[str], code: int, said: str) -> None:
    done = call(*words)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert said in done.stderr + done.stdout
    assert not [char for char in HOSTILE if char in done.stderr]


def test_a_tool_that_says_it_failed_makes_the_command_fail(showy: Daemon) -> None:
    done = call("sdk", "fail")
    assert (done.returncode, done.stdout) == (1, "Error executing tool fail: this went wrong\n")
    told = call("sdk", "fail", "--json")
    assert told.returncode == 1
    assert json.loads(told.stdout)["isError"] is True


def test_progress_and_logs_are_told_on_stderr_while_the_answer_is_on_stdout(showy: Daemon) -> None:
    done = call("sdk", "progress", "steps=3")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.splitlines() == ["1 of 3 step 1", "2 of 3 step 2", "3 of 3 step 3"]
    logged = call("sdk", "log")
    assert logged.stdout == "logged\n"
    assert "info: something happened" in logged.stderr


def test_with_json_the_result_is_printed_as_it_came(showy: Daemon) -> None:
    done = call("showy", "numbers", "--json")
    assert done.returncode == 0
    assert '"structuredContent":{"big":12345678901234567890123,"wide":1e400,"z":1,"a":1.0}' in done.stdout


def test_pictures_and_files_are_saved_under_names_of_ours(showy: Daemon, tmp_path: Path) -> None:
    done = call("showy", "picture", "--save", "out/deep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["look", "out/deep/2.png", "out/deep/3.pdf", "out/deep/4.bin"]
    assert (tmp_path / "out" / "deep" / "2.png").read_bytes() == b"\x89PNG not really"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["2.png", "3.pdf", "4.bin"]
    unsaved = call("showy", "picture").stdout.splitlines()
    assert unsaved[1] == "[image/png, 15 bytes; save it with --save DIR]"


def test_content_that_is_not_what_it_says_is_printed_as_data(showy: Daemon) -> None:
    done = call("showy", "odd-content")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["null", "7", '{"type": "text"}']
    assert lines[-2:] == ["a note note://1", "the note itself"]
    assert "is not valid base64" in done.stderr


def test_c19_nothing_that_a_server_says_does_anything_to_a_terminal(showy: Daemon) -> None:
    commands = [
        ["call", "showy", "nasty"],
        ["call", "showy", "fails"],
        ["call", "showy", "nasty", "--json"],
        ["call", "showy", "odd-content"],
        ["call", "showy", "refuses"],
        ["call", "dead", "kinds"],
        ["tools"],
        ["tools", "--json"],
        ["list"],
        ["get", "dead"],
        ["debug", "dead"],
        ["debug", "showy"],
    ]
    for words in commands:
        # On a dumb one no line of ours moves, so that what moves is a server's.
        with at_a_terminal("mcp", *words, env={"TERM": "dumb"}) as person:
            person.ends()
        assert len(person.text) > 10, words
        assert not [char for char in HOSTILE if char in person.text], (words, person.text)


def test_c19_what_is_piped_stays_as_it_came(showy: Daemon) -> None:
    assert "\x1b[2J" in call("showy", "nasty").stdout
    assert call("showy", "nasty").stdout.endswith("\nsecond\tline\n")


def test_inside_a_project_the_call_goes_to_the_server_of_that_workspace(showy: Daemon, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "app")], check=True, timeout=30)
    app = (tmp_path / "app").resolve()
    assert rookery("project", "add", str(app)).returncode == 0
    code = "import pathlib, runpy, sys; pathlib.Path('was-here').touch(); runpy.run_path(sys.argv[1])"
    define(showy={"command": [sys.executable, "-c", code, SHOWY[1]]})
    assert call("showy", "kinds", "text=x", cwd=app).stdout == '{"text": "x"}\n'
    assert (app / "was-here").exists()
    assert call("showy", "kinds", "--global", cwd=app).stdout == "{}\n"
    assert (Path(os.environ["HOME"]) / "was-here").exists()
    found = json.loads(user("mcp", "list", "--json", cwd=app).stdout)
    assert found["showy"]["workspace"] == str(app)


def test_a_person_sees_that_a_server_takes_long_to_start(daemon: Daemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    define(showy={"command": ["sh", "-c", f"read -r go < {gate}; exec {shlex.join(SHOWY)}"]})
    with at_a_terminal("mcp", "call", "showy", "kinds", "text=x", env={"TERM": "xterm"}) as person:
        person.reads("\r\x1b[Klisting the tools of showy ... 1 s")
        gate.write_text("go\n")
        assert person.ends() == 0
    # The line is taken away before the answer.
    assert person.text.endswith('\r\x1b[K{"text": "x"}\n')


def test_ctrl_c_cancels_the_call(showy: Daemon) -> None:
    with on_a_terminal("mcp", "call", "sdk", "slow") as (pid, ours):
        wait_for_line(ours, b"0\r\n")
        os.write(ours, b"\x03")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert call("sdk", "was_cancelled").stdout == "true\n"


def test_a_call_that_is_killed_is_cancelled_too(showy: Daemon) -> None:
    words = [str(ROOKERY), "mcp", "call", "sdk", "slow"]
    with subprocess.Popen(words, cwd=os.environ["HOME"], stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        wait_for_line(running.stderr.fileno(), b"0\n")
        running.send_signal(signal.SIGKILL)
    assert call("sdk", "was_cancelled").stdout == "true\n"
