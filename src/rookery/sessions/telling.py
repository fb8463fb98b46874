"""Tells everybody who watches what sessions do: on the daemon's stream of events, where messages would be too many."""

from typing import Any

from rookery.agents.status import SessionState
from rookery.sessions.changes import Changes
from rookery.sessions.finding import Finding
from rookery.sessions.records import Change
from rookery.sessions.room import Room
from rookery.system.bus import Bus


class Telling:
    """Publishes `session.changed` where one is new or does something else, `session.closed`, and `session.toast`."""

    def __init__(self, finding: Finding, changes: Changes, events: Bus) -> None:
        self._finding, self._events = finding, events
        # What was told last of each workspace: its sessions, and how many toasts.
        self._told: dict[str, tuple[tuple[SessionState, ...], int]] = {}
        changes.listen(self._changed)

    def _changed(self, changes: frozenset[Change]) -> None:
        concerned = {one.workspace for one in changes if one.what != "messages"}
        if not concerned:
            return
        rooms = {room.path: room for room in self._finding.rooms(None)}
        for path in self._told.keys() - rooms.keys():
            # It was closed, which is told by itself.
            del self._told[path]
        for path in concerned & rooms.keys():
            self._tell(rooms[path])

    def _tell(self, room: Room) -> None:
        now = room.tenant.agent.sessions, room.toasts.count
        # Of all that there were when the agent began nothing has changed.
        before = self._told.get(room.path, (now[0], 0))
        self._told[room.path] = now
        if now[0] is not before[0]:
            self._tell_of_sessions(room, dict(map(_shown, before[0])), dict(map(_shown, now[0])))
        for toast in room.toasts.added(before[1]):
            self._publish("session.toast", room, toast=toast.as_dict())

    def _tell_of_sessions(self, room: Room, before: dict[str, Any], now: dict[str, Any]) -> None:
        for id_, shown in now.items():
            if shown != before.get(id_):
                self._publish("session.changed", room, session=shown)
        for id_ in before.keys() - now.keys():
            self._publish("session.closed", room, session={"id": id_})

    def _publish(self, event: str, room: Room, **more: Any) -> None:
        one = room.workspace
        self._events.publish(event, project=one.project.id, name=one.name, path=room.path, **more)


def _shown(one: SessionState) -> tuple[str, dict[str, Any]]:
    return one.id, {"id": one.id, "title": one.title, "opencode": one.state, "asks": len(one.asks)}
