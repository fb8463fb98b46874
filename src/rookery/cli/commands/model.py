"""`rookery model`."""

import os

import click

from rookery.cli.groups import SuggestingGroup
from rookery.cli.launch import exec_daemon_command

SERVE_EPILOG = """\b
Examples:
  rookery model serve --check tour.toml       is this script sound?
  rookery model serve tour.toml               play it at any free port; Ctrl-C stops it
  rookery model serve tour.toml --port 8123 --log requests.jsonl
"""


ENV_EPILOG = """\b
Examples:
  eval "$(rookery model env tour.toml)"               in sh, bash or zsh
  rookery model env tour.toml --shell fish | source
  rookery ws create try --prompt "Go."                its agent plays the script
"""


EPILOG = """\b
Examples:
  rookery model serve tour.toml
  eval "$(rookery model env tour.toml)"
"""


@click.group(cls=SuggestingGroup, epilog=EPILOG)
def model() -> None:
    """The scripted model: plays a script, so that agents run offline."""


@model.command(epilog=SERVE_EPILOG)
@click.argument("script", type=click.Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1; by default any.")
@click.option("--log", type=click.Path(), help="Append every request to this file, as lines of JSON.")
@click.option("--key", envvar="ROOKERY_MODEL_KEY", help="Answer only requests that carry this API key.")
@click.option("--check", is_flag=True, help="Only check the script.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and do not report requests.")
def serve(script: str, port: int, log: str | None, key: str | None, check: bool, as_json: bool) -> None:
    """Play a script as an OpenAI-compatible server on 127.0.0.1.

    Runs in the foreground until it is signalled. Prints its address and the OpenCode config that uses it, and tells
    of every request which step answered it.
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
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1; by default any.")
@click.option("--log", type=click.Path(), help="Append every request to this file, as lines of JSON.")
@click.option("--shell", type=click.Choice(["sh", "fish"]), default="sh", help="The shell that reads it.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def env(script: str, port: int, log: str | None, shell: str, as_json: bool) -> None:
    """Play a script in the background, for a shell that evaluates this.

    Prints the variables with which agents use it. OpenCode and Rookery's daemon, started in that shell afterwards, have
    this model and no other. It ends with the shell, or with: kill $ROOKERY_MODEL_PID. A daemon that runs already keeps
    the model that it was started with.
    """
    words = [f"--script={script}", f"--port={port}", f"--shell={shell}", f"--env-for={os.getppid()}"]
    words += [f"--log={log}"] if log else []
    words += ["--json"] if as_json else []
    exec_daemon_command("model", *words)
