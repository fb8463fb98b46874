"""What the commands of boulder ask of the daemon, and how one session's state reads in a line."""

import json
from typing import Any

import click

from rookery.cli.session_names import Record, Sessions
from rookery.cli.visible import visible

_PLUGIN = "/api/plugins/boulder"


class Boulder:
    def __init__(self, no_start: bool) -> None:
        self.sessions = Sessions(no_start)

    def act(self, action: str, **args: Any) -> bytes:
        """What an action answers, as JSON."""
        given = {key: value for key, value in args.items() if value is not None}
        data = self.sessions.known.ask("POST", f"{_PLUGIN}/actions/{action}", {"args": given})
        return json.dumps(json.loads(data)["result"], ensure_ascii=False).encode()

    def state(self) -> bytes:
        return self.sessions.known.ask("GET", f"{_PLUGIN}/state")

    def subject(self, session: str | None, workspace: str | None, project: str | None) -> Record:
        """For which of the three it is meant."""
        if sum(one is not None for one in (session, workspace, project)) != 1:
            raise click.UsageError("say for what: a session, --workspace or --project")
        if session is not None:
            return {"sessionId": self.sessions.id_of(session)}
        if workspace is not None:
            return {"workspace": self.sessions.known.one(None if workspace == "." else workspace)["path"]}
        return {"project": project}


def told(state: Record) -> str:
    """One line: how it stands, what is spent, and what holds it back."""
    line = f"{state['sessionId']} is {state['status']}, {state['iteration']} of {state['budget']} spent"
    gates = "; ".join(one["reason"] for one in state["gates"])
    return visible(f"{line}: {gates}" if gates else line)
