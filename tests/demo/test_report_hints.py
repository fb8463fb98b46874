"""The commands that the demo suggests work."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rookery.cli.main import cli
from rookery.demo.report import AgentReport, Report, find_program_name, format_hints


def a_report() -> Report:
    worked = AgentReport(
        workspace="fix-greeting",
        path=Path("/x"),
        session="ses_1",
        prompt="Do it.",
        said="Done.",
        tools=["edit"],
        files=["greet.py"],
        patch="",
        toast="done",
        screenshot="/x/fix-greeting.png",
        screenshot_of="terminal",
    )
    return Report(
        folder=Path("/x"),
        home=Path("/a b"),
        url="u",
        opencode="1",
        server={},
        agents=[worked],
        seconds=1.0,
        sandbox="off",
    )


def test_every_command_that_is_named_exists_and_takes_what_it_is_given() -> None:
    lines = list(format_hints(a_report(), "rookery"))
    assert "  export ROOKERY_HOME='/a b'" in lines
    commands = [shlex.split(re.sub(r"\x1b\[\d*m", "", line), comments=True)[1:] for line in lines if "#" in line]
    assert len(commands) > 4
    for words in commands:
        command: click.Command = cli
        context = click.Context(cli)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None
            command = found
        command.make_context(command.name, words)


def test_the_program_is_called_as_it_can_be_from_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = Path(sys.executable).parent
    (tmp_path / "rookery").symlink_to(here / "rookery")
    for search in (here, tmp_path):
        monkeypatch.setenv("PATH", str(search))
        assert find_program_name() == "rookery"
    monkeypatch.setenv("PATH", "/nowhere")
    for folder in (here.parent, Path("/")):
        monkeypatch.chdir(folder)
        for home, name in (("/elsewhere", f"{here}/rookery"), (str(here.parent), f"~/{here.name}/rookery")):
            monkeypatch.setenv("HOME", home)
            assert find_program_name() == name
            found = subprocess.run(["/bin/sh", "-c", f"{name} --version"], capture_output=True, text=True, check=True)
            assert found.stdout.startswith("rookery")
