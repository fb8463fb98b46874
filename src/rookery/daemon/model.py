"""`rookery model serve`: check a script, or play it in the foreground until a signal comes."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from rookery.cli import output
from rookery.cli.failure import Failure, report
from rookery.system.errors import RookeryError
from rookery.system.visible import visible
from rookery.testing.loading import load_script
from rookery.testing.model import scripted_model
from rookery.testing.place import Place
from rookery.testing.request_log import Record
from rookery.testing.script import Script
from rookery.testing.snippet import opencode_config

KEY = "ROOKERY_MODEL_KEY"


@dataclass(frozen=True)
class ServeOptions:
    script: Path
    port: int = 0
    log: Path | None = None
    check: bool = False
    as_json: bool = False


def run_model(options: ServeOptions) -> int:
    try:
        script = load_script(options.script)
        if options.check:
            _tell_checked(options, script)
        else:
            # The key does not stand in our arguments, where every user of this machine could read it.
            asyncio.run(_serve(options, script, os.environ.get(KEY) or None))
    except RookeryError as error:
        return report(Failure(error.code, error.message, error.remedy))
    return 0


def _tell_checked(options: ServeOptions, script: Script) -> None:
    count = script.count()
    if options.as_json:
        output.answer(json.dumps({"script": str(options.script), **count}))
        return
    told = ", ".join(f"{number} {name if number > 1 else name[:-1]}" for name, number in count.items())
    output.answer(f"{options.script} can be played: {told}")


async def _serve(options: ServeOptions, script: Script, key: str | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # Without --json nobody parses our output, and whoever wrote the script wants to see it play.
    tell = None if options.as_json else _tell_request
    async with scripted_model(script, port=options.port, key=key, log=options.log, tell=tell) as model:
        config = opencode_config(model.url, f"{{env:{KEY}}}" if key else None)
        if options.as_json:
            output.answer(json.dumps({"url": model.url, "pid": os.getpid(), "opencode": config}))
        else:
            output.answer(f"playing {options.script} at {model.url}")
            output.narrate(
                f"for OpenCode, in opencode.json or OPENCODE_CONFIG_CONTENT:\n{json.dumps(config, indent=2)}"
            )
        await stop.wait()


def _tell_request(record: Record) -> None:
    """One line a request, on stderr."""
    place = Place(record.conversation or 0, None, record.turn, record.step) if record.kind == "step" else record.kind
    line = visible(f"{record.session or 'no session'}: {record.problem or place}")
    output.narrate(output.paint(line, "red", sys.stderr) if record.problem else line)
