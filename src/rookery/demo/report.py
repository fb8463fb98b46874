"""The report of a demo, as JSON and for people, and the hints that are printed after it.

The hints are commands that work in a second terminal as they are printed.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rookery.cli import output
from rookery.cli.ws.diff import paint_diff_line


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent did.

    `tools` are those that ran, `files` those that git reports as changed, and `patch` is their diff. `screenshot` is a
    file, and `screenshot_of` says whether it shows the `terminal` or a `rendering` of the conversation.
    """

    workspace: str
    path: Path
    session: str
    prompt: str
    said: str
    tools: list[str]
    files: list[str]
    patch: str
    toast: str
    screenshot: str
    screenshot_of: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a demo. `sandbox` is that of the agents.

    `home` is the ROOKERY_HOME with which commands reach the demo while it runs.
    """

    folder: Path
    home: Path
    url: str
    opencode: str
    sandbox: str
    server: dict[str, Any]
    agents: list[AgentReport]
    seconds: float

    def as_json(self) -> str:
        return msgspec.json.encode(self, enc_hook=str).decode()

    def write_diffs(self) -> None:
        """Write the diff of each workspace."""
        for agent in self.agents:
            output.write("")
            output.write(output.paint(f"git diff in {agent.workspace}", "bold"))
            output.write("\n".join(map(paint_diff_line, output.visible_lines(agent.patch.rstrip("\n")).split("\n"))))


def format_hints(report: Report, program: str) -> Iterator[str]:
    """Yield the lines that show which commands to try while the demo runs, and afterwards."""
    first = report.agents[0]
    yield ""
    yield output.paint("The demo runs until you press Ctrl-C. In a second terminal:", "bold")
    yield f"  export ROOKERY_HOME={shlex.quote(str(report.home))}"
    for words, what in (
        ("status", "an overview"),
        (f"session messages {first.workspace}", "the conversation"),
        (f"session send {first.workspace} 'Thank you.'", "send a message"),
        (f"agent attach {first.workspace}", "OpenCode itself; Ctrl-C leaves it"),
        (f"ws diff {first.workspace}", "the diff again"),
        ("mcp call tickets read_ticket number=2", "call the same tool yourself"),
        ("client print claude-code", "the config for another client"),
    ):
        yield f"  {program} {words:<45} {output.paint('# ' + what, 'dim')}"
    yield ""
    yield "On your own repository, in a new terminal, in its folder:"
    for words, what in (
        ("agent login", "sign in to a model provider"),
        ("ws create my-task --prompt '...'", "start an agent on a task, in its own worktree"),
    ):
        yield f"  {program} {words:<45} {output.paint('# ' + what, 'dim')}"


def find_program_name() -> str:
    """Return the word with which a shell runs this Rookery from any folder."""
    executable = Path(sys.executable).with_name("rookery")
    on_path = shutil.which("rookery")
    if not executable.exists() or (on_path is not None and Path(on_path).resolve() == executable.resolve()):
        return "rookery"
    home = Path(os.environ.get("HOME", "/")).absolute()
    if home != Path("/") and executable.is_relative_to(home):
        return f"~/{shlex.quote(str(executable.relative_to(home)))}"
    return shlex.quote(str(executable))
