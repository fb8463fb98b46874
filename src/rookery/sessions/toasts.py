"""Record the toasts of one workspace, which OpenCode shows and forgets.

Most arrive as events. Those that OpenCode's own interface raises appear only on the screen of its terminal, and are
read there (`rookery.sessions.terminal.screens`).
"""

from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from rookery.agents.opencode.events import ToastShown
from rookery.sessions.records import Toast

# The oldest toasts are dropped first.
MAX_TOASTS = 500
_MAX_CHARS = 10_000
_MAX_EXPECTED = 100
# The event of a requested toast arrives within this time, or not at all.
_EXPECTED_MILLISECONDS = 60_000
# An interface may still show a toast this long after it expired, because it drew the toast later than the event
# arrived.
_LATE_MILLISECONDS = 5_000

# A prefix of at least this many letters is taken for a toast that did not fit on the screen.
_MIN_PREFIX_CHARS = 20


@dataclass(frozen=True)
class _ExpectedToast:
    """A toast that Rookery has requested for a session. OpenCode's event does not name the session."""

    toast: ToastShown
    session: str
    asked_at: float


class ToastLog:
    """The toasts of one workspace. Times are in milliseconds since the epoch."""

    def __init__(self, project: str, workspace: str) -> None:
        self._project = project
        self._workspace = workspace
        # The number of toasts ever added, including dropped ones.
        self.count = 0
        self._toasts: deque[Toast] = deque(maxlen=MAX_TOASTS)
        self._expected: deque[_ExpectedToast] = deque(maxlen=_MAX_EXPECTED)

    # Toasts from events

    def expect(self, toast: ToastShown, session: str, now: float) -> None:
        """Attribute the next event with this toast to the session."""
        self._expected.append(_ExpectedToast(toast, session, now))

    def add(self, event: ToastShown, now: float) -> Toast:
        """Add a toast from an event."""
        session = self._take_expected_session(event, now)
        return self._append(
            Toast(
                message=event.message[:_MAX_CHARS],
                title=event.title[:_MAX_CHARS] if event.title is not None else None,
                variant=event.variant,
                duration=event.duration,
                shown_at=now,
                expires_at=now + event.duration,
                workspace=self._workspace,
                project=self._project,
                session_id=session,
                attributed=session is not None,
            )
        )

    # Toasts from a screen

    def is_known(self, message: str, seen_at: float) -> bool:
        """Return whether a toast on a screen has arrived as an event, or is expected to.

        Every interface of the workspace shows an event's toast, whichever session it is for, wrapped and perhaps
        truncated. The title is not compared: OpenCode draws a toast without a title under the title of the toast before
        it.
        """
        drawn = _letters(message)
        expected = [entry.toast for entry in self._expected if entry.asked_at + _EXPECTED_MILLISECONDS > seen_at]
        recent = [
            toast
            for toast in self._toasts
            if toast.source == "event" and toast.expires_at + _LATE_MILLISECONDS > seen_at
        ]
        return any(_matches_drawn(_letters(toast.message), drawn) for toast in (*expected, *recent))

    def add_from_screen(self, title: str | None, message: str, session: str, seen_at: float) -> Toast:
        """Add a toast that is visible on the screen of a session. Its end is set by `end`."""
        return self._append(
            Toast(
                message=message[:_MAX_CHARS],
                title=title[:_MAX_CHARS] if title is not None else None,
                variant="unknown",
                shown_at=seen_at,
                workspace=self._workspace,
                project=self._project,
                session_id=session,
                attributed=True,
                source="screen",
            )
        )

    def end(self, toast: Toast, now: float) -> None:
        """Set the end of a toast that was read from a screen and is no longer visible."""
        for index, entry in enumerate(self._toasts):
            if entry is toast:
                self._toasts[index] = replace(entry, duration=now - entry.shown_at, expires_at=now)
                return

    # Queries

    def current(self, now: float, session: str | None = None) -> list[Toast]:
        """Return the visible toasts; with `session`, without those of other sessions."""
        return [toast for toast in self._toasts if _is_visible(toast, now) and _may_belong_to(toast, session)]

    def since(self, moment: float, now: float | None = None, session: str | None = None) -> list[Toast]:
        """Return the toasts shown after a moment, or visible at `now`.

        With `session`, leave out those of other sessions.
        """
        return [
            toast
            for toast in self._toasts
            if (toast.shown_at > moment or (now is not None and _is_visible(toast, now)))
            and _may_belong_to(toast, session)
        ]

    def added_since(self, count: int, session: str | None = None) -> list[Toast]:
        """Return the kept toasts that were added after the first `count`.

        With `session`, leave out those of other sessions.
        """
        new = list(self._toasts)[max(len(self._toasts) - (self.count - count), 0) :]
        return [toast for toast in new if _may_belong_to(toast, session)]

    def last(self, session: str) -> Toast | None:
        """Return the newest toast that does not belong to another session."""
        return next((toast for toast in reversed(self._toasts) if _may_belong_to(toast, session)), None)

    def _append(self, toast: Toast) -> Toast:
        self._toasts.append(toast)
        self.count += 1
        return toast

    def _take_expected_session(self, event: ToastShown, now: float) -> str | None:
        """Return the session of an expected toast, None for any other."""
        while self._expected and self._expected[0].asked_at + _EXPECTED_MILLISECONDS <= now:
            self._expected.popleft()
        for expected in self._expected:
            if expected.toast == event:
                self._expected.remove(expected)
                return expected.session
        return None


def _may_belong_to(toast: Toast, session: str | None) -> bool:
    """Return whether a toast belongs to this session, or may belong to it because its session is not known."""
    return session is None or toast.session_id in (None, session)


def _is_visible(toast: Toast, now: float) -> bool:
    return toast.expires_at > now or (toast.source == "screen" and toast.expires_at == 0)


def _matches_drawn(message: str, drawn: str) -> bool:
    """Return whether a message on the screen is this one, whole or truncated."""
    return message == drawn or (len(drawn) >= _MIN_PREFIX_CHARS and message.startswith(drawn))


def _letters(text: str) -> str:
    """Return the letters and digits of a text, which wrapping and drawing keep.

    A text without any is returned without its white space.
    """
    return "".join(filter(str.isalnum, text)) or "".join(text.split())
