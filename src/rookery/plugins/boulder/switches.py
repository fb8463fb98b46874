"""For what the owner has switched boulder on or off. Touches nothing outside."""

from collections.abc import Iterable
from typing import Literal

import msgspec

Level = Literal["project", "workspace", "session"]
LEVELS: tuple[Level, ...] = ("session", "workspace", "project")


class Switch(msgspec.Struct, frozen=True):
    """`subject` is a project's id, a workspace's folder, or a session's id; `checks` are those declared with it."""

    level: Level
    subject: str
    enabled: bool
    checks: str | None = None
    at: float = 0


class Switches:
    """The narrowest that says something about a session decides; without any it is off."""

    def __init__(self, given: Iterable[Switch] = ()) -> None:
        self._all = {(one.level, one.subject): one for one in given}
        self._changed()

    def set(self, switch: Switch) -> None:
        self._all[switch.level, switch.subject] = switch
        self._changed()

    def drop(self, level: Level, subject: str) -> None:
        self._all.pop((level, subject), None)
        self._changed()

    def _changed(self) -> None:
        # Asked for with every event of every agent.
        self.any_on = any(one.enabled for one in self._all.values())

    def get(self, level: Level, subject: str) -> Switch | None:
        return self._all.get((level, subject))

    def of(self, project: str, workspace: str, session: str) -> Switch | None:
        subjects = {"session": session, "workspace": workspace, "project": project}
        found = (self._all.get((level, subjects[level])) for level in LEVELS)
        return next((one for one in found if one is not None), None)
