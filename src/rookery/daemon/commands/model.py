"""`rookery model serve` and `env`: check a script, or play it until a signal arrives or a shell ends."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.cli import output
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure, report_failure
from rookery.daemon_client.start import build_daemon_command
from rookery.system.errors import RookeryError
from rookery.system.process.launch import start_detached
from rookery.system.process.table import find_calling_shell, wait_for_pid
from rookery.system.tasks import TaskSet
from rookery.system.text import escape_invisible
from rookery.testing.load import load_script
from rookery.testing.model import opencode_config, scripted_model
from rookery.testing.player import ScriptPosition
from rookery.testing.request_log import LoggedRequest
from rookery.testing.script import Script

KEY_VARIABLE = "ROOKERY_MODEL_KEY"


@dataclass(frozen=True)
class ServeOptions:
    script: Path
    port: int = 0
    log: Path | None = None
    check: bool = False
    as_json: bool = False
    # In the background: the process whose end stops the model, and the pipe that reports when the model is ready.
    until: int | None = None
    ready_fd: int | None = None


@dataclass(frozen=True)
class EnvOptions:
    """Options of `rookery model env`.

    `caller` is the process that asks for the variables; `shell` is the language that they are written in.
    """

    script: Path
    caller: int
    port: int = 0
    log: Path | None = None
    shell: str = "sh"
    as_json: bool = False


def run_env(options: EnvOptions) -> int:
    """Start a model in the background, and print the variables with which agents use it."""
    try:
        load_script(options.script)
        details = _start(options)
    except RookeryError as error:
        return report_failure(Failure(error.code, error.message, error.remedy))
    variables = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(details["opencode"], separators=(",", ":")),
        "ROOKERY_MODEL_URL": str(details["url"]),
        "ROOKERY_MODEL_PID": str(details["pid"]),
    }
    if options.as_json:
        output.write(json.dumps({"url": details["url"], "pid": details["pid"], "environment": variables}))
        return 0
    for name, value in variables.items():
        output.write(_assignment(options.shell, name, value))
    output.write_note(f"playing {escape_invisible(str(options.script))} at {details['url']} until this shell ends")
    if sys.stdout.isatty():
        use = " | source" if options.shell == "fish" else '; use it: eval "$(rookery model env SCRIPT)"'
        output.write_note(f"no variable is set yet{use}")
    if (running := connection.connect()) is not None:
        running.close()
        output.write_note(
            "a daemon is running, and its agents use the model that it was started with; stop it: rookery down"
        )
    return 0


def _start(options: EnvOptions) -> dict[str, Any]:
    """Start `model serve` detached, to run until the calling shell ends; return its report when it is ready."""
    words = [f"--script={options.script.absolute()}", f"--port={options.port}", "--json"]
    words += [f"--log={options.log.absolute()}"] if options.log else []
    words += [f"--until={find_calling_shell(options.caller)}"]
    pipe = start_detached(lambda ready: build_daemon_command("model", *words, f"--ready-fd={ready}"), os.devnull)
    with os.fdopen(pipe, encoding="utf-8") as stream:
        line = stream.read()
    if not line:
        raise RookeryError("spawn-failed", "the model did not start", "see why: rookery model serve SCRIPT")
    reply: dict[str, Any] = json.loads(line)
    if "error" in reply:
        error = reply["error"]
        raise RookeryError(error["code"], error["message"], error.get("remedy", ""))
    return reply


def _assignment(shell: str, name: str, value: str) -> str:
    if shell == "fish":
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {name} '{quoted}'"
    return f"export {name}={shlex.quote(value)}"


def run_model(options: ServeOptions) -> int:
    """Check or serve a script, and return the exit code."""
    try:
        script = load_script(options.script)
        if options.check:
            _print_counts(options, script)
        else:
            # The key is not passed in the arguments, where every user of this machine could read it.
            asyncio.run(_serve(options, script, os.environ.get(KEY_VARIABLE) or None))
    except RookeryError as error:
        if options.ready_fd is not None:
            # The end of this process closes the pipe; the reader waits for that.
            os.write(options.ready_fd, json.dumps({"error": error.as_dict()}).encode())
        return report_failure(Failure(error.code, error.message, error.remedy))
    return 0


def _report_ready(pipe: int, details: Mapping[str, Any]) -> None:
    with os.fdopen(pipe, "w", encoding="utf-8") as stream:
        json.dump(details, stream)


def _print_counts(options: ServeOptions, script: Script) -> None:
    count = script.count()
    if options.as_json:
        output.write(json.dumps({"script": str(options.script), **count}))
        return
    counts = ", ".join(f"{number} {name if number > 1 else name[:-1]}" for name, number in count.items())
    output.write(f"{options.script} is valid: {counts}")


async def _serve(options: ServeOptions, script: Script, key: str | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # Without --json no program parses the output, and the author of the script wants to follow the play.
    on_request = None if options.as_json else _print_request
    async with scripted_model(script, port=options.port, key=key, log=options.log, on_request=on_request) as model:
        config = opencode_config(model.url, f"{{env:{KEY_VARIABLE}}}" if key else None)
        details = {"url": model.url, "pid": os.getpid(), "opencode": config}
        if options.ready_fd is not None:
            _report_ready(options.ready_fd, details)
        elif options.as_json:
            output.write(json.dumps(details))
        else:
            output.write(f"playing {options.script} at {model.url}")
            output.write_note(
                f"for OpenCode, in opencode.json or OPENCODE_CONFIG_CONTENT:\n{json.dumps(config, indent=2)}"
            )
        tasks = TaskSet("model")
        if options.until is not None:
            tasks.start(_stop_after(options.until, stop), "until")
        await stop.wait()
        await tasks.close()


async def _stop_after(pid: int, stop: asyncio.Event) -> None:
    await wait_for_pid(pid)
    stop.set()


def _print_request(record: LoggedRequest) -> None:
    """Print one line for a request, on stderr."""
    position = (
        ScriptPosition(record.conversation or 0, None, record.turn, record.step)
        if record.kind == "step"
        else record.kind
    )
    line = escape_invisible(f"{record.session or 'no session'}: {record.problem or position}")
    output.write_note(output.paint(line, "red", sys.stderr) if record.problem else line)
