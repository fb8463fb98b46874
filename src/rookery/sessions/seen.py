"""What was seen of a session's screen, and who may see it."""

from dataclasses import dataclass
from pathlib import Path

from rookery.sessions.finding import Found
from rookery.sessions.readiness import shows_another
from rookery.sessions.regions import regions
from rookery.sessions.screen import Screen
from rookery.sessions.screen_records import Regions, ScreenShown, Source, shown
from rookery.system.errors import RookeryError


@dataclass(frozen=True)
class Seen:
    """The screen of a session, as cells. `note` tells why it is a rendering, or what is not on it yet."""

    found: Found
    screen: Screen
    source: Source
    note: str | None = None

    def told(self, *, colours: bool = False) -> ScreenShown:
        parts = regions(self.screen) if self.source == "terminal" else Regions()
        return shown(self.found.id, self.screen, self.source, parts, note=self.note, colours=colours)


def still(found: Found, screen: Screen, late: str | None, scope: Path | None) -> Seen:
    """What a terminal shows, and a note if that is no longer its session."""
    message = "its terminal was led to something else with keys"
    if not may_see(found, screen.title, scope):
        raise RookeryError("agent-unavailable", message)
    another = shows_another(screen.title, found.session.title)
    return Seen(found, screen, "terminal", message if another else late)


def may_see(found: Found, window: str, scope: Path | None) -> bool:
    """What else the owner has led it to is for the owner's eyes only."""
    return scope is None or not shows_another(window, found.session.title)
