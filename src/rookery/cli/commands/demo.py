"""`rookery demo`."""

import os

import click

from rookery.daemon_client.start import exec_daemon_command

_EPILOG = """\b
Examples:
  rookery demo                              until Ctrl-C
  rookery demo --once                       exits at the end
  rookery demo --once --json --pictures .   for programs; saves the screenshots here
"""


@click.command(epilog=_EPILOG)
@click.option("--once", is_flag=True, help="Exit at the end of the tour instead of waiting for Ctrl-C.")
@click.option("--pictures", type=click.Path(file_okay=False), help="Save the screenshots to this folder.")
@click.option("--keep", is_flag=True, help="Keep the folder of the demo. Its processes are still stopped.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress.")
def demo(once: bool, pictures: str | None, keep: bool, as_json: bool) -> None:
    """Run a demo: two agents on a temporary project.

    The agents are real OpenCode processes on a scripted model, so no key is needed. They edit files, call a tool of an
    MCP server through Rookery and show toasts. The demo uses a temporary folder and its own daemon, and does not touch
    your projects, sessions and settings. If OpenCode is missing, it is installed from npm, and stays.
    """
    words = [f"--pictures={os.path.abspath(pictures)}"] if pictures else []  # noqa: PTH100 - pathlib costs as much as click
    chosen = {"--once": once, "--keep": keep, "--json": as_json}
    exec_daemon_command("demo", *words, *(word for word, wanted in chosen.items() if wanted))
