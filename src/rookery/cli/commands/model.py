"""`rookery model`."""

import os

import click

from rookery.cli.groups import SuggestingGroup
from rookery.cli.options import json_option
from rookery.daemon_client.start import exec_daemon_command

SERVE_EPILOG = """\b
Examples:
  rookery model serve --check tour.toml       check the script
  rookery model serve tour.toml               replay it on a free port; Ctrl-C stops it
  rookery model serve tour.toml --port 8123 --log requests.jsonl
"""


ENV_EPILOG = """\b
Examples:
  eval "$(rookery model env tour.toml)"               in sh, bash or zsh
  rookery model env tour.toml --shell fish | source
  rookery ws create try --prompt "Go."                the agent uses the script
"""


EPILOG = """\b
Examples:
  rookery model serve tour.toml
  eval "$(rookery model env tour.toml)"
"""


@click.group(cls=SuggestingGroup, epilog=EPILOG)
def model() -> None:
    """The scripted model: replays a script, so that agents run offline."""


@model.command(epilog=SERVE_EPILOG)
@click.argument("script", type=click.Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1; default: any free port.")
@click.option("--log", type=click.Path(), help="Append every request to this file, as JSON lines.")
@click.option("--key", envvar="ROOKERY_MODEL_KEY", help="Accept only requests with this API key.")
@click.option("--check", is_flag=True, help="Only check the script.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and do not report requests.")
def serve(script: str, port: int, log: str | None, key: str | None, check: bool, as_json: bool) -> None:
    """Replay a script as an OpenAI-compatible server on 127.0.0.1.

    Runs in the foreground until it receives a signal. Prints its URL and the OpenCode config that uses it, and reports
    the step that served each request.
    """
    if key:
        os.environ["ROOKERY_MODEL_KEY"] = key
    words = [f"--script={script}", f"--port={port}"]
    words += [f"--log={log}"] if log else []
    words += ["--check"] if check else []
    words += ["--json"] if as_json else []
    exec_daemon_command("model", *words)


@model.command(epilog=ENV_EPILOG)
@click.argument("script", type=click.Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1; default: any free port.")
@click.option("--log", type=click.Path(), help="Append every request to this file, as JSON lines.")
@click.option("--shell", type=click.Choice(["sh", "fish"]), default="sh", help="The shell that evaluates the output.")
@json_option
def env(script: str, port: int, log: str | None, shell: str, as_json: bool) -> None:
    """Replay a script in the background, and print its variables.

    Evaluate the output in a shell. If you start OpenCode or Rookery's daemon in that shell, they use only this model.
    The model stops with the shell, or with: kill $ROOKERY_MODEL_PID. A daemon that already runs keeps its model.
    """
    words = [f"--script={script}", f"--port={port}", f"--shell={shell}", f"--env-for={os.getppid()}"]
    words += [f"--log={log}"] if log else []
    words += ["--json"] if as_json else []
    exec_daemon_command("model", *words)
