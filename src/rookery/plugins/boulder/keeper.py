"""Looks after sessions: hears what they do, waits as long as gates are closed, and enforces when all are open."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rookery.plugins.boulder import kept as moves, words
from rookery.plugins.boulder.alarms import Alarms
from rookery.plugins.boulder.book import Book, Line, What
from rookery.plugins.boulder.checks import read_checks
from rookery.plugins.boulder.deciding import Enforce, Look, Wait
from rookery.plugins.boulder.gates import Limits, Work, budget_of, gates
from rookery.plugins.boulder.kept import Kept
from rookery.plugins.boulder.live import Live
from rookery.plugins.boulder.looking import Ground, look
from rookery.plugins.boulder.switches import Switch, Switches
from rookery.plugins.house import House
from rookery.system.errors import RookeryError

if TYPE_CHECKING:
    from rookery.system.clock import Clock

_TITLE = "Boulder"
_TOAST_MILLISECONDS = 10_000
_SEND_SECONDS = 30.0


class Keeper:
    """`changed` is called with a session whose state is no longer as it was."""

    def __init__(
        self,
        house: House,
        book: Book,
        ground: Ground,
        limits: Limits,
        checks: str,
        changed: Callable[[Live], None],
        alarms: type[Alarms] = Alarms,
    ) -> None:
        self.switches, self.live = Switches(), dict[str, Live]()
        self.limits, self.checks = limits, checks
        self._house, self._book, self._ground, self._changed = house, book, ground, changed
        self._clock: Clock = house.clock
        self.alarms = alarms(house.clock, self._rings)

    async def load(self) -> None:
        self.switches = Switches(await self._book.switches())
        for id_, (path, kept) in (await self._book.sessions()).items():
            self.live[id_] = Live(id_, path, kept=kept)

    def now(self) -> float:
        return self._clock.wall()

    def switch_of(self, live: Live) -> Switch | None:
        return self.switches.of(live.project, live.path, live.id)

    def checks_of(self, live: Live) -> str:
        """As they are written, which may be wrong in the settings."""
        switch = self.switch_of(live)
        return switch.checks if switch is not None and switch.checks is not None else self.checks

    # ---- what changes

    def consider(self, live: Live) -> None:
        """After every change: wait for the moment when something is to be done, or do it."""
        self.alarms.cancel(live.id)
        self._changed(live)
        if live.looking or not live.there:
            return
        match live.decide(self.now(), self.switch_of(live), self.limits):
            case Wait(until):
                self.alarms.set(live.id, until)
            case Look() | Enforce():
                live.looking = True
                self._house.tasks.start(self._act(live), f"look at {live.id}")
            case _:
                pass

    async def become(self, live: Live, kept: Kept, what: What | None = None, why: str = "", who: str = "") -> None:
        """Keep this of it from now on; with `what`, as a line of the log."""
        live.kept = kept
        line = self._line(what, who, live, why) if what is not None else None
        if line is not None or self._is_on(live):
            await self._book.keep(live.id, live.path, kept, self.now(), line)

    def _is_on(self, live: Live) -> bool:
        switch = self.switch_of(live)
        return switch is not None and switch.enabled

    def _line(self, what: What, who: str, live: Live, why: str) -> Line:
        by = who or f"boulder, switched on for the {switch.level if (switch := self.switch_of(live)) else 'session'}"
        return Line(round(self.now() * 1000, 3), what, by, live.id, live.path, live.kept.iteration, why)

    # ---- what is done

    def _rings(self, session: str) -> None:
        if (live := self.live.get(session)) is not None:
            self.consider(live)

    async def _act(self, live: Live) -> None:
        try:
            work = await self._looked(live)
            if work is not None and isinstance(self._decided(live, work), Enforce):
                await self._enforce(live, work.why)
        except RookeryError as error:
            # What cannot be written down must not be done.
            live.untold = Work(None, error.message)
            self._house.log.warning("boulder leaves %s alone: %s", live.id, error.message)
        finally:
            live.looking = False
        self.consider(live)

    def _decided(self, live: Live, work: Work) -> object:
        """Once more: a look takes its time, and much may have happened meanwhile."""
        return live.decide(self.now(), self.switch_of(live), self.limits, work)

    async def _looked(self, live: Live) -> Work | None:
        """What is left to do; None where nothing is to be done about it now."""
        before = live.kept
        try:
            checks = read_checks(self.checks_of(live))
            seen = await look(self._house.sessions, self._ground, live.id, live.path, checks)
        except RookeryError as error:
            live.untold = Work(None, error.message)
            return None
        if seen.running:
            # What is heard of it is late: that it works, and when it stops, is still to come.
            live.running = True
        if seen.used:
            # Who uses it so is not told of; its idle period begins anew.
            live.idle_since = self.now()
        if live.running or seen.used or live.kept != before:
            # Something has happened since: what was seen may be no longer so.
            return None
        judged = moves.judged(live.kept, failed=seen.failed)
        if seen.work.left is False:
            await self.become(live, moves.completed(judged, seen.work.why), "complete", seen.work.why)
            return None
        if judged != live.kept:
            await self.become(live, judged)
        live.untold = seen.work if seen.work.left is None else None
        return seen.work

    async def _enforce(self, live: Live, why: str) -> None:
        kept, sessions, budget = live.kept, self._house.sessions, budget_of(live.kept, self.limits)
        live.enforcing = True
        await self.become(live, moves.enforced(kept, self.now()), "enforced", why)
        number = live.kept.iteration
        self._changed(live)
        try:
            if await self._called_off(live, kept):
                return
            toast = words.toast(number, budget, why)
            await sessions.show_toast(live.id, toast, title=_TITLE, variant="warning", duration=_TOAST_MILLISECONDS)
            if not await self._called_off(live, kept):
                await sessions.send(live.id, words.message(number, budget, why), wait=False, timeout=_SEND_SECONDS)
        except RookeryError as error:
            live.enforcing = False
            await self.become(live, moves.unsent(live.kept, kept.last_enforcement, self.now()), "failed", error.message)

    async def _called_off(self, live: Live, before: Kept) -> bool:
        """Whether a gate has closed meanwhile, of which those that count what is sent are as they were before."""
        taken_back = moves.taken_back(live.kept, before.last_enforcement)
        as_before = replace(taken_back, attempted=before.attempted)
        closed = next(gates(as_before, self.now(), live.facts(self.switch_of(live)), self.limits), None)
        if closed is None:
            return False
        live.enforcing = False
        await self.become(live, taken_back, "failed", f"it was called off: {closed.reason}")
        return True
