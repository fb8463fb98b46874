"""What one can do while the demo runs, in words that work in a second terminal as they stand."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rookery.cli import output
from rookery.demo.report import Report


def hints(found: Report, program: str) -> Iterator[str]:
    first = found.agents[0]
    yield ""
    yield output.paint("It all runs until you press Ctrl-C. In a second terminal:", "bold")
    yield f"  export ROOKERY_HOME={shlex.quote(str(found.home))}"
    for words, what in (
        ("status", "who is there"),
        (f"session messages {first.workspace}", "what was said and done"),
        (f"session send {first.workspace} 'Thank you.'", "say something"),
        (f"agent attach {first.workspace}", "OpenCode itself; Ctrl-C leaves it"),
        (f"ws diff {first.workspace}", "the change once more"),
        ("mcp call tickets read_ticket number=2", "the same tool, by hand"),
        ("client print claude-code", "how another program connects"),
    ):
        yield f"  {program} {words:<45} {output.paint('# ' + what, 'dim')}"
    yield ""
    yield f"The same on a repository of yours: {program} up, and then {program} agent login"


def program_name() -> str:
    """How this Rookery is called from the current folder."""
    here = Path(sys.executable).with_name("rookery")
    if shutil.which("rookery") == str(here) or not here.exists():
        return "rookery"
    folder = Path(os.getcwd())  # noqa: PTH109
    return shlex.quote(str(here.relative_to(folder)) if here.is_relative_to(folder) else str(here))
