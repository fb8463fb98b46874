"""Click groups: one that suggests commands, one that imports them on use, one with a default command.

`LazyGroup` knows the names and summaries of its commands without importing them, so that `--help` stays fast.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class SuggestingGroup(click.Group):
    """A group that suggests similar commands when a command is unknown."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            suggestions = [f"`{ctx.command_path} {name}`" for name in self._suggest(ctx, args[0])]
            hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else f"see `{ctx.command_path} --help`"
            raise click.UsageError(f"There is no command {args[0]!r}; {hint}", ctx) from error

    def _suggest(self, ctx: click.Context, word: str) -> list[str]:
        """Return commands that may be meant: those of this name in subgroups, or those with the closest spelling."""
        import difflib

        names = self.list_commands(ctx)
        verbs: dict[str, list[str]] = {}
        for name in names:
            group = self.get_command(ctx, name)
            for verb in group.list_commands(ctx) if isinstance(group, click.Group) else ():
                verbs.setdefault(verb, []).append(f"{name} {verb}")
        if word in verbs:
            return verbs[word]
        (closest, *_) = difflib.get_close_matches(word, [*names, *verbs], n=1) or [""]
        return [closest] if closest in names else verbs.get(closest, [])


class LazyGroup(SuggestingGroup):
    """A group that imports a command when it is used.

    `table` maps each name to the module, with `:attribute` if that differs from the name, and to the line that `--help`
    shows.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute or cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


class ListByDefaultGroup(click.Group):
    """A group that runs its command `list` if none of its commands is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_command = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if has_command else ["list", *args])
