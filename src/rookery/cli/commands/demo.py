"""`rookery demo`."""

import os

import click

from rookery.cli.launch import exec_daemon_command

_EPILOG = """\b
Examples:
  rookery demo                              until Ctrl-C
  rookery demo --once                       ends by itself
  rookery demo --once --json --pictures .   for programs; the screenshots stay here
"""


@click.command(epilog=_EPILOG)
@click.option("--once", is_flag=True, help="End when the tour is over, instead of waiting for Ctrl-C.")
@click.option("--pictures", type=click.Path(file_okay=False), help="Save the screenshots here, where they stay.")
@click.option("--keep", is_flag=True, help="Leave the folder of the demo behind. What runs is ended all the same.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress.")
def demo(once: bool, pictures: str | None, keep: bool, as_json: bool) -> None:
    """See it work: two agents on a throw-away project.

    The agents are real OpenCode processes on a scripted model, so no key is needed. They edit files, call a tool of an
    MCP server through Rookery and show toasts. The demo uses a temporary folder and its own daemon, and does not touch
    your projects, sessions and settings. If OpenCode is missing, it is installed from npm, and stays.
    """
    words = [f"--pictures={os.path.abspath(pictures)}"] if pictures else []  # noqa: PTH100 - pathlib costs as much as click
    chosen = {"--once": once, "--keep": keep, "--json": as_json}
    exec_daemon_command("demo", *words, *(word for word, wanted in chosen.items() if wanted))
