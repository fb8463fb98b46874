"""The commands of `rookery`, for tests that run all of them."""

from collections.abc import Iterator
from typing import Any

import click

from rookery.cli.main import cli


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command of the click tree, including new ones."""

    def below(command: click.Command, names: tuple[str, ...], above: click.Context | None) -> Iterator[Any]:
        context = click.Context(command, above, info_name=names[-1] if names else "rookery")
        if not isinstance(command, click.Group):
            yield names, command
            return
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from below(member, (*names, name), context)

    yield from below(cli, (), None)
