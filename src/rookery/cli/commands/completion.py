"""`rookery completion`."""

import click

from rookery.cli import output

EPILOG = """\b
Examples:
  rookery completion bash > ~/.local/share/bash-completion/completions/rookery
  rookery completion zsh > ~/.zfunc/_rookery
  rookery completion fish > ~/.config/fish/completions/rookery.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for a shell."""
    from click.shell_completion import get_completion_class

    from rookery.cli.main import cli

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    output.write(completion_class(cli, {}, "rookery", "_ROOKERY_COMPLETE").source())
