"""`rookery session toasts`."""

import json

import click

from rookery.cli import output
from rookery.cli.output import Column
from rookery.cli.session.common import (
    OPTIONAL_SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    format_query_time,
    format_time,
    session_options,
    since_option,
)

_HEADS = [
    Column("SHOWN", min_width=19),
    Column("WORKSPACE", min_width=12),
    Column("SESSION", output.MINOR, None),
    Column("KIND", output.MINOR),
    Column("TOAST", output.VITAL, 20, wraps=True),
]
_STYLES = {"error": "red", "warning": "yellow", "success": "green"}


@click.command(epilog="\b\nExamples:\n  rookery session toasts\n  rookery session toasts fix-login --since 1h\n")
@OPTIONAL_SESSION_ARGUMENT
@since_option
@session_options
def toasts(session: str | None, since: float | None, as_json: bool, no_start: bool) -> None:
    """Show toasts.

    Shows the visible toasts of one session or of all; with --since, also earlier ones. OpenCode does not report the
    session of a toast. If Rookery does not know it either, SESSION is "unknown", and the toast counts for every session
    of its workspace.
    """
    sessions = SessionClient(no_start)
    id_ = sessions.resolve_optional_id(session)
    data = sessions.request_session(id_ or "toasts", "/toasts" if id_ else "", since=format_query_time(since))
    records: list[JsonObject] = json.loads(data)
    if as_json:
        output.write_json(data)
    elif records:
        styles = [_STYLES.get(toast["variant"]) for toast in records]
        short = sessions.short_ids(toast["sessionId"] for toast in records if toast["sessionId"])
        output.write(output.format_table([_row(toast, short) for toast in records], _HEADS, styles))
    else:
        output.write_note("no toasts" if since is not None else "no toast is visible")


def _row(toast: JsonObject, short: dict[str, str]) -> list[str]:
    text = f"{toast['title']}: {toast['message']}" if toast["title"] else toast["message"]
    session = short.get(toast["sessionId"] or "", "unknown")
    return [format_time(toast["shownAt"]), toast["workspace"], session, toast["variant"], text]
