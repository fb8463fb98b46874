"""What a demo has seen happen: for programs as JSON, and for people at the end."""

from pathlib import Path
from typing import Any

import msgspec

from rookery.cli import output
from rookery.cli.ws_diff import painted


class Worked(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent did. `tools` are those that ran, `files` those that git sees changed, with the `patch`.
    `screenshot` is a file, a picture of its `terminal` or of a `rendering` of what was said."""

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
    """`home` is what ROOKERY_HOME has to be to reach the demo, as long as it runs."""

    folder: Path
    home: Path
    url: str
    opencode: str
    server: dict[str, Any]
    agents: list[Worked]
    seconds: float

    def as_json(self) -> str:
        return msgspec.json.encode(self, enc_hook=str).decode()

    def tell(self) -> None:
        for one in self.agents:
            output.answer("")
            output.answer(output.paint(f"git diff in {one.workspace}", "bold"))
            output.answer("\n".join(map(painted, output.foreign(one.patch.rstrip("\n")).split("\n"))))
