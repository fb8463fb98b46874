"""A group that knows the names and summaries of its commands before it imports them."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """`table` has for each name the module, with `:attribute` where that differs, and the line that `--help` shows."""

    def __init__(self, *given: Any, table: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*given, **more)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute or cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.table, n=1)
            hint = f"did you mean `{ctx.command_path} {near[0]}`?" if near else f"see `{ctx.command_path} --help`"
            raise click.UsageError(f"There is no command {args[0]!r}; {hint}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


class ListByDefault(click.Group):
    """A group whose command `list` is meant where none of its commands is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])
