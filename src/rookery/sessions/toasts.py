"""The toasts of one workspace: OpenCode shows them and forgets them, so they are written down here."""

from collections import deque

from rookery.agents.message_events import ToastShown
from rookery.sessions.records import Toast

# The oldest go first.
KEPT = 500
_LONGEST = 10_000
_EXPECTED = 100


class ToastLog:
    """Times are in milliseconds since the epoch."""

    def __init__(self, project: str, workspace: str) -> None:
        self._project, self._workspace = project, workspace
        # How many there ever were.
        self.count = 0
        self._toasts: deque[Toast] = deque(maxlen=KEPT)
        # Toasts that Rookery has asked for, and for which session: OpenCode tells of none whose it is.
        self._expected: deque[tuple[ToastShown, str]] = deque(maxlen=_EXPECTED)

    def expect(self, toast: ToastShown, session: str) -> None:
        self._expected.append((toast, session))

    def add(self, shown: ToastShown, now: float) -> Toast:
        toast = Toast(
            message=shown.message[:_LONGEST],
            title=shown.title[:_LONGEST] if shown.title is not None else None,
            variant=shown.variant,
            duration=shown.duration,
            shown_at=now,
            expires_at=now + shown.duration,
            workspace=self._workspace,
            project=self._project,
            session_id=self._whose(shown),
        )
        self._toasts.append(toast)
        self.count += 1
        return toast

    def current(self, now: float) -> list[Toast]:
        """Those that are on show."""
        return [one for one in self._toasts if one.expires_at > now]

    def since(self, moment: float, now: float | None = None) -> list[Toast]:
        """Those that were shown after a moment, or are on show `now`."""
        return [one for one in self._toasts if one.shown_at > moment or (now is not None and one.expires_at > now)]

    def added(self, count: int) -> list[Toast]:
        """Those that came since there were so many, as far as they are kept."""
        return list(self._toasts)[max(len(self._toasts) - (self.count - count), 0) :]

    @property
    def last(self) -> Toast | None:
        return self._toasts[-1] if self._toasts else None

    def _whose(self, shown: ToastShown) -> str | None:
        for expected in self._expected:
            if expected[0] == shown:
                self._expected.remove(expected)
                return expected[1]
        return None
