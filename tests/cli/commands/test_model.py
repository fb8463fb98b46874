"""`rookery model serve` checks a script and plays it until Ctrl-C."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.completions import body, user
from tests.support.daemon.foreground import wait_for_line
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, alive, rookery, wait_dead
from tests.support.requirements import requirement

EXAMPLE = Path(__file__).parents[3] / "docs" / "guide" / "scripted-model.toml"

pytestmark = requirement("kit.model.face")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.toml"
    path.write_text('step = [{ call = "bash", with = { command = "ls" } }, { say = "Done." }]\n')
    return path


@contextmanager
def serving(*words: str, **env: str) -> Generator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [ROOKERY, "model", "serve", *words],
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def complete(url: str, text: str, key: str = "") -> tuple[int, Any]:
    headers = {"content-type": "application/json", "x-session-id": "ses_1", "authorization": f"Bearer {key}"}
    asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body([user(text)])).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def out(process: "subprocess.Popen[bytes]", wanted: bytes) -> str:
    assert process.stdout is not None
    return wait_for_line(process.stdout.fileno(), wanted).decode()


def err(process: "subprocess.Popen[bytes]", wanted: bytes) -> str:
    assert process.stderr is not None
    return wait_for_line(process.stderr.fileno(), wanted).decode()


def test_a_script_is_played_until_ctrl_c(script: Path) -> None:
    with serving(str(script)) as process:
        told = out(process, b"\n")
        assert told.startswith(f"playing {script} at http://127.0.0.1:")
        url = told.split()[-1]
        shown = err(process, b"\n}\n")
        assert json.loads(shown[shown.index("{") :])["provider"]["scripted"]["options"]["baseURL"] == url
        status, answer = complete(url, "Go")
        assert status == 200
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "bash"
        assert "ses_1: conversation 1, turn 1, step 1\n" in err(process, b"step 1\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_an_unforeseen_request_is_told_on_stderr(script: Path) -> None:
    script.write_text('[[conversation]]\nwhen = "tour"\nturn = [{ step = [{ say = "x" }] }]\n')
    with serving(str(script)) as process:
        status, answer = complete(out(process, b"\n").split()[-1], "A\x1b[2J tower")
        assert status == 400
        assert "conversation 1, turn 1, step 1" in answer["error"]["message"]
        told = err(process, b'begin with "tour"\n')
        assert "the script has no reply to this request" in told
        assert "\x1b" not in told


def test_json_tells_address_and_config_in_one_line_and_the_log_has_every_request(script: Path) -> None:
    log = script.with_name("log.jsonl")
    with serving(str(script), "--json", "--log", str(log), "--key", "s3cret") as process:
        told = json.loads(out(process, b"\n"))
        assert told["pid"] == process.pid
        assert told["opencode"]["provider"]["scripted"]["options"]["apiKey"] == "{env:ROOKERY_MODEL_KEY}"
        assert b"s3cret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert complete(told["url"], "Go")[0] == 401
        assert complete(told["url"], "Go", "s3cret")[0] == 200
        assert [json.loads(line)["user"] for line in log.read_text().splitlines()] == ["Go"]
        process.terminate()
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_script_is_only_checked(script: Path) -> None:
    done = rookery("model", "serve", "--check", str(script))
    assert (done.returncode, done.stdout) == (0, f"{script} is valid: 1 conversation, 1 turn, 2 steps\n")
    counted = json.loads(rookery("model", "serve", "--check", "--json", str(script)).stdout)
    assert counted == {"script": str(script), "conversations": 1, "turns": 1, "steps": 2}


def test_a_script_with_an_error_is_refused_with_the_place(script: Path) -> None:
    script.write_text('step = [{ say = "a" }, { say = "b" }]')
    done = rookery("model", "serve", str(script))
    assert done.returncode == 2
    assert f"{script}, conversation 1, turn 1: step 2 can never be played" in done.stderr
    missing = rookery("model", "serve", "--json", "none.toml")
    assert missing.returncode == 3
    assert json.loads(missing.stderr)["error"]["code"] == "script-not-found"


def test_a_port_that_is_taken_is_told(script: Path) -> None:
    with serving(str(script), "--json") as process:
        port = json.loads(out(process, b"\n"))["url"].split(":")[2].removesuffix("/v1")
        done = rookery("model", "serve", str(script), "--port", port)
        assert done.returncode == 1
        assert f"port {port} of 127.0.0.1 is in use by another program" in done.stderr


def test_the_example_of_the_guide_can_be_played() -> None:
    done = rookery("model", "serve", "--check", str(EXAMPLE))
    assert done.returncode == 0, done.stderr


def evaluated(shell: str, code: str, script: Path) -> str:
    """What a shell prints that runs this code; `$1` is the script."""
    argv = [shell, "-c", code, str(ROOKERY), str(script)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_evaluates_the_variables_of_a_model_that_lives_as_long_as_it(shell: str, script: Path) -> None:
    # A name that a shell would take apart.
    odd = script.with_name('it\'s $HOME; "odd".toml')
    script.rename(odd)
    code = """
        eval "$("$0" model env "$1")"
        printf '%s\\n' "$OPENCODE_CONFIG_CONTENT" "$ROOKERY_MODEL_URL" "$ROOKERY_MODEL_PID"
        read wait
    """
    with subprocess.Popen(
        [shell, "-c", code, str(ROOKERY), str(odd)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        config, url, pid = (process.stdout.readline().decode().strip() for _ in range(3))
        assert json.loads(config)["provider"]["scripted"]["options"]["baseURL"] == url
        assert complete(url, "Go")[0] == 200
        assert f"at {url} until this shell ends" in process.stderr.readline().decode()
        assert alive(int(pid))
        process.stdin.close()
        assert process.wait(SECONDS) == 1
        wait_dead(int(pid))


def test_the_variables_are_written_for_fish_too_and_as_json(script: Path) -> None:
    code = '"$0" model env "$1" --shell fish; "$0" model env "$1" --json'
    *fish, told = evaluated("sh", code, script).splitlines()
    values = dict(re.findall(r"^set -gx (\w+) '([^'\\\\]*)'$", "\n".join(fish), re.MULTILINE))
    assert json.loads(values["OPENCODE_CONFIG_CONTENT"])["model"] == "scripted/scripted"
    answer = json.loads(told)
    assert answer["environment"].keys() == values.keys()
    assert answer["environment"]["ROOKERY_MODEL_URL"] == answer["url"]
    for pid in (int(values["ROOKERY_MODEL_PID"]), answer["pid"]):
        wait_dead(pid)


def test_a_model_that_cannot_play_is_told_and_not_started(script: Path) -> None:
    missing = rookery("model", "env", str(script.with_name("nothing.toml")))
    assert missing.returncode == 3 and missing.stdout == ""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = rookery("model", "env", str(script), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1 and done.stdout == "" and "in use by another program" in done.stderr


def test_whoever_has_a_daemon_already_is_told_that_it_keeps_its_model(daemon: Daemon, script: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'eval "$("$0" model env "$1")"; echo $ROOKERY_MODEL_PID', str(ROOKERY), str(script)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert "rookery down" in done.stderr
    wait_dead(int(done.stdout))
