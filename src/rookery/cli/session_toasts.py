"""`rookery session toasts`."""

import json

import click

from rookery.cli import output
from rookery.cli.session_names import ANY_SESSION, Record, Sessions, common
from rookery.cli.session_times import as_query, clock, since as since_option
from rookery.cli.visible import visible

_HEADS = ["SHOWN", "WORKSPACE", "KIND", "TOAST"]
_STYLES = {"error": "red", "warning": "yellow", "success": "green"}


@click.command(epilog="\b\nExamples:\n  rookery session toasts\n  rookery session toasts fix-login --since 1h\n")
@ANY_SESSION
@since_option
@common
def toasts(session: str | None, since: float | None, as_json: bool, no_start: bool) -> None:
    """Show toasts.

    Those on show now in a session's workspace, or in all; with --since also those that are gone by now.
    """
    sessions = Sessions(no_start)
    id_ = sessions.id_or_none(session)
    data = sessions.ask_of(id_ or "toasts", "/toasts" if id_ else "", since=as_query(since))
    found: list[Record] = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif found:
        styles = [_STYLES.get(one["variant"]) for one in found]
        output.answer(output.table([_row(one) for one in found], _HEADS, styles, fit=True))
    else:
        output.narrate("there are none" if since is not None else "none is on show")


def _row(one: Record) -> list[str]:
    text = f"{one['title']}: {one['message']}" if one["title"] else one["message"]
    return [visible(cell) for cell in (clock(one["shownAt"]), one["workspace"], one["variant"], text)]
