"""What boulder makes of what it hears of sessions. Those that work for others are no concern of its own."""

from rookery.plugins.boulder import kept as moves, words
from rookery.plugins.boulder.keeper import Keeper
from rookery.plugins.boulder.kept import Kept
from rookery.plugins.boulder.live import Live
from rookery.plugins.events import AskEvent, MessageEvent, SessionEvent, ToolEvent


class Hearing:
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def session(self, event: SessionEvent) -> None:
        if event.parent is not None:
            return
        if event.hook == "session.closed":
            self._gone(event.session_id)
            return
        live, now = self._entered(event), self._keeper.now()
        match event.hook:
            case "session.busy":
                live.running, live.untold = True, None
                # Off everywhere it does not hear what is said: then somebody else has begun this turn.
                moved = moves.works if self._keeper.switches.any_on else moves.spoken_to
                await self._becomes(live, moved(live.kept, now))
            case "session.idle":
                live.running, live.enforcing, live.untold = False, False, None
                live.tools.clear()
                live.asks.clear()
                if not event.found:
                    live.idle_since = now
                    await self._becomes(live, moves.rests(live.kept, now))
                else:
                    await self._becomes(live, moves.found(live.kept))
            case "session.error" if event.aborted:
                live.aborted_at = now
            case _:
                pass
        self._keeper.consider(live)

    async def message(self, event: MessageEvent) -> None:
        live = self._keeper.live.get(event.session_id)
        if live is None or event.role != "user" or words.is_ours(event.content):
            return
        # Its turn begins in a moment.
        live.untold, live.idle_since = None, self._keeper.now()
        await self._becomes(live, moves.spoken_to(live.kept, live.idle_since))
        self._keeper.consider(live)

    async def tool(self, event: ToolEvent) -> None:
        live = self._keeper.live.get(event.session_id)
        if live is None:
            return
        if event.hook == "tool.started":
            live.tools[event.run.id] = event.run.tool
        else:
            live.tools.pop(event.run.id, None)
        self._keeper.consider(live)

    async def ask(self, event: AskEvent) -> None:
        live = self._keeper.live.get(event.session_id)
        if live is None:
            return
        if event.hook == "ask.opened":
            live.asks.add(event.ask.id)
        else:
            live.asks.discard(event.ask.id)
        self._keeper.consider(live)

    def _entered(self, event: SessionEvent) -> Live:
        live = self._keeper.live.get(event.session_id)
        if live is None:
            live = self._keeper.live[event.session_id] = Live(event.session_id, event.path)
        if not live.there:
            # How long it has been idle before is not known.
            live.there, live.idle_since = True, self._keeper.now()
        live.path, live.project, live.workspace = event.path, event.project, event.workspace
        return live

    def _gone(self, session: str) -> None:
        live = self._keeper.live.get(session)
        if live is None:
            return
        live.there = live.running = live.enforcing = False
        live.tools.clear()
        live.asks.clear()
        if live.kept == Kept(last_activity=live.kept.last_activity):
            del self._keeper.live[session]
        self._keeper.consider(live)

    async def _becomes(self, live: Live, kept: Kept) -> None:
        if kept != live.kept:
            await self._keeper.become(live, kept)
