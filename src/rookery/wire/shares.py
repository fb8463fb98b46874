"""Fair shares: how much of the daemon one token may hold at a time, and how its requests are paced.

The token of a workspace has its own share of everything that can run out. All workspaces together leave a part to the
owner, who is limited by the totals alone. Shares are counted over all listeners and endpoints of the process. Requests
of workspaces are paced, so that many of them at once delay a request of the owner by no more than a single one does.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rookery.system.clock import SYSTEM_CLOCK, Clock, thread_cpu_seconds
from rookery.wire.http.auth import OWNER, Refusal

if TYPE_CHECKING:
    from rookery.wire.server.session import Session, Sessions


T = TypeVar("T")

# The owner counts as active for so long after a request.
_OWNER_ACTIVE_SECONDS = 0.25
# While the owner is active, the event loop is idle for this many times as long as it worked for workspaces.
_IDLE_PER_BUSY = 2.0
# A request of a workspace waits no longer than this for its turn, even if the owner alone keeps the loop busy.
_MAX_PAUSE_SECONDS = 0.01
# Only work that was measured to be done for workspaces makes the pause longer, up to this.
_MAX_DEBT_SECONDS = 2.0


class Pacer:
    """Starts the requests of workspace tokens one at a time, and takes the tokens in turn.

    It starts at most one request in each pass of the event loop. Between two passes the loop reads the data of other
    connections, so a request of the owner waits for the one workspace request that is being started, and not for all
    that arrived with it.

    While the owner is active, it also pauses between two requests, until the loop has been idle for a multiple of the
    time that it was busy since the first of them. So most requests of the owner meet an idle loop, however many
    requests the workspaces send.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, busy_seconds: Callable[[], float] = thread_cpu_seconds) -> None:
        self.clock = clock
        # Returns how long the event loop's thread has worked so far.
        self._busy_seconds = busy_seconds
        # Whether `_next_turn` is going to be called.
        self._scheduled = False
        # By the name of the principal; the one whose turn is next comes first.
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._owner_active_until = 0.0
        # The time and the busy seconds at the last start of a request while the owner was active.
        self._last_start = (0.0, 0.0)
        # Until then the loop is idle, as far as workspaces are concerned, for long steps that it has done for them.
        self._idle_until = 0.0

    def note_owner_request(self) -> None:
        """Record that the owner is active."""
        self._owner_active_until = self.clock.monotonic() + _OWNER_ACTIVE_SECONDS

    @property
    def is_owner_active(self) -> bool:
        return self.clock.monotonic() < self._owner_active_until

    def charge(self, began: float) -> None:
        """Pause for work of a workspace that has kept the loop busy until now. It began at this monotonic time."""
        now = self.clock.monotonic()
        if now < self._owner_active_until:
            pause = _IDLE_PER_BUSY * (now - began)
            self._idle_until = min(max(self._idle_until, now) + pause, now + _MAX_DEBT_SECONDS)

    def start(self, name: str, request: Callable[[], None]) -> None:
        """Call `request` now or later, after earlier requests of the same token."""
        if self._scheduled:
            self._waiting.setdefault(name, deque()).append(request)
        elif pause := self._compute_pause():
            self._waiting.setdefault(name, deque()).append(request)
            self._schedule(pause)
        else:
            self._schedule(0)
            request()

    async def run(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run the work on a request of a token, of which each step takes a turn.

        Many requests may wait for the same thing, and would otherwise all continue in one pass.
        """
        return await _PacedSteps(self, name, work)

    async def wait_for_turn(self, name: str) -> None:
        """Wait until a message of a token may be handled."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.start(name, lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _schedule(self, pause: float) -> None:
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if pause:
            loop.call_later(pause, self._next_turn)
        else:
            loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if not self._waiting:
            self._scheduled = False
            return
        if pause := self._compute_pause():
            self._schedule(pause)
            return
        name = next(iter(self._waiting))
        requests = self._waiting.pop(name)
        request = requests.popleft()
        if requests:
            self._waiting[name] = requests
        self._schedule(0)
        request()

    def _compute_pause(self) -> float:
        """Return how long the next request has to wait, and record its start if it does not have to."""
        now = self.clock.monotonic()
        if now >= self._owner_active_until:
            return 0.0
        busy_now = self._busy_seconds()
        started, busy_before = self._last_start
        elapsed = now - started
        busy = busy_now - busy_before
        pause = max(min(busy * (1 + _IDLE_PER_BUSY), _MAX_PAUSE_SECONDS) - elapsed, self._idle_until - now)
        if pause > 0:
            return pause
        self._last_start = now, busy_now
        return 0.0


class _PacedSteps:
    """Awaits a coroutine, and waits for a turn whenever it could continue."""

    def __init__(self, pacer: Pacer, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self._pacer = pacer
        self._name = name
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work
        error = None
        try:
            while True:
                began = self._pacer.clock.monotonic()
                try:
                    waited = steps.send(None) if error is None else steps.throw(error)
                except StopIteration as end:
                    return end.value
                finally:
                    self._pacer.charge(began)
                error = None
                try:
                    yield waited
                    yield from self._pacer.wait_for_turn(self._name).__await__()
                except Exception as caught:
                    error = caught
                except asyncio.CancelledError as caught:
                    error = caught
        finally:
            steps.close()


@dataclass(frozen=True)
class ShareLimits:
    """The most that one workspace token may hold, and the most bytes that all tokens may hold together."""

    connections: int = 128
    streams: int = 64
    sessions: int = 256
    held_bytes: int = 67_108_864
    held_bytes_in_all: int = 536_870_912


def compute_workspace_share(total: int) -> int:
    """Return how much of a total all workspaces may hold together. A quarter is reserved for the owner."""
    return total - max(1, total // 4) if total > 1 else total


class Shares:
    """What every token holds at the moment. A token is identified by the name of its principal."""

    def __init__(self, limits: ShareLimits | None = None) -> None:
        self.limits = limits if limits is not None else ShareLimits()
        self.connections: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        # Calls that run on without their client, which may reconnect for the rest of the stream.
        self.detached: Counter[str] = Counter()
        self.pacer = Pacer()
        # Each session with the `Sessions` that holds it, the first opened first.
        self.sessions: dict[str, dict[Session, Sessions]] = {}
        # Bytes of requests and responses in progress, bytes of events kept for clients that resume a stream, and bytes
        # of parked calls and subscriptions.
        self.request_bytes = ByteBudget(self.limits.held_bytes, self.limits.held_bytes_in_all)
        self.replay_bytes = ByteBudget(self.limits.held_bytes, self.limits.held_bytes_in_all)
        self.kept_bytes = ByteBudget(self.limits.held_bytes, self.limits.held_bytes_in_all)

    # Connections and streams

    def has_connection_left(self, name: str) -> bool:
        """Return whether a token may open one more connection."""
        return name == OWNER.name or self.connections[name] < self.limits.connections

    def refuse_connection(self) -> Refusal:
        """Return the refusal for a token that has as many connections open as it may."""
        most = self.limits.connections
        return Refusal(
            429,
            "too-many-connections",
            f"this workspace's token has {most} open connections, which is the limit",
            remedy="close some of them, or raise limits.connections_each",
        )

    def refuse_stream(self, name: str) -> Refusal | None:
        """Return a refusal if a token has as many streams open as it may."""
        most = self.limits.streams
        if name == OWNER.name or self.streams[name] < most:
            return None
        return Refusal(
            429,
            "too-many-streams",
            f"this workspace's token has {most} open streams, which is the limit",
            remedy="close some of them, or raise limits.streams_each",
        )

    def can_detach(self, name: str) -> bool:
        """Return whether one more call of a token may run on without its client."""
        return name == OWNER.name or self.detached[name] < self.limits.streams

    # Sessions

    def get_max_sessions(self, name: str) -> int | None:
        """Return how many sessions a token may have, or None for the owner, who has no limit."""
        return None if name == OWNER.name else self.limits.sessions

    def refuse_session(self) -> Refusal:
        """Return the refusal for a token whose sessions are all in use."""
        return Refusal(
            429,
            "too-many-sessions",
            f"this workspace's token has {self.limits.sessions} sessions, and all are in use",
            remedy="end one, or raise limits.sessions_each",
        )

    def add_session(self, name: str, session: "Session", registry: "Sessions") -> None:
        self.sessions.setdefault(name, {})[session] = registry

    def remove_session(self, name: str, session: "Session") -> None:
        sessions = self.sessions[name]
        del sessions[session]
        if not sessions:
            del self.sessions[name]


class ByteBudget:
    """Counts the bytes that tokens hold: a limit for each token, and a total that reserves a part for the owner."""

    def __init__(self, token_limit: int, total_limit: int) -> None:
        self._token_limit = token_limit
        self._total_limit = total_limit
        self._bytes_by_token: Counter[str] = Counter()

    @property
    def total_held(self) -> int:
        return self._bytes_by_token.total()

    def take(self, name: str, size: int) -> Refusal | None:
        """Count bytes towards a token until `give_back`. Return a refusal if that exceeds a limit."""
        if name == OWNER.name:
            fits = self.total_held + size <= self._total_limit
        elif self._bytes_by_token[name] + size > self._token_limit:
            return Refusal(
                429,
                "too-many-bytes",
                f"requests and responses of this workspace's token would exceed {self._token_limit} bytes",
                remedy="send fewer requests at a time and read the responses, or raise limits.held_bytes_each",
            )
        else:
            fits = self.total_held - self._bytes_by_token[OWNER.name] + size <= compute_workspace_share(
                self._total_limit
            )
        if not fits:
            return Refusal(
                503,
                "too-many-bytes",
                f"requests and responses in progress would exceed {self._total_limit} bytes",
                remedy="try again, or raise limits.held_bytes",
            )
        self._bytes_by_token[name] += size
        return None

    def give_back(self, name: str, size: int) -> None:
        decrease_count(self._bytes_by_token, name, size)


class HeldBytes:
    """The bytes of a token's budget that one holder, such as a request or a stream, has taken."""

    __slots__ = ("_budget", "_name", "size")

    def __init__(self, budget: ByteBudget, name: str) -> None:
        self._budget = budget
        self._name = name
        self.size = 0

    def resize(self, size: int) -> Refusal | None:
        """Hold `size` bytes from now on. Return a refusal, and change nothing, if that exceeds a limit."""
        growth = size - self.size
        if growth > 0 and (refusal := self._budget.take(self._name, growth)) is not None:
            return refusal
        if growth < 0:
            self._budget.give_back(self._name, -growth)
        self.size = size
        return None

    def release(self) -> None:
        self.resize(0)


def decrease_count(counter: Counter[str], name: str, size: int = 1) -> None:
    """Decrease a count, and remove the token if nothing is left."""
    counter[name] -= size
    if counter[name] <= 0:
        del counter[name]
