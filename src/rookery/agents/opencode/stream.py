"""A subscription to an agent's events, from `server.connected` until it ends or times out."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from rookery.agents.opencode.api import ApiConnection, unreachable_error
from rookery.agents.opencode.events import CONNECTED_EVENT, AgentEvent, decode_event
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.client.remote import EVENT_STREAM
from rookery.wire.http_client.connection import HttpResponse
from rookery.wire.http_client.sse import SseParser

# OpenCode sends a heartbeat every 10 seconds; after three missing ones the stream counts as lost.
SILENCE_SECONDS = 30.0


class EventStream:
    """Buffers the events of a subscription until `listen` is called, and then passes on all of them at once."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._connected = False
        self._events: list[AgentEvent] = []
        self._on_events: Callable[[Sequence[AgentEvent]], None] | None = None
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    async def wait_until_connected(self) -> None:
        """Wait until the subscription is connected: from then on no event is missed."""
        while not self._connected:
            await self._wait()

    async def listen(self, on_events: Callable[[Sequence[AgentEvent]], None], *first: AgentEvent) -> NoReturn:
        """Pass all events to `on_events`: at first `first` and the buffered events, and then each chunk as it arrives.

        Raise the error that ended the stream, or an exception of `on_events`.
        """
        on_events([*first, *self._events])
        self._events = []
        self._on_events = on_events
        while True:
            await self._wait()

    async def _wait(self) -> None:
        if isinstance(self._error, RookeryError):
            raise RookeryError(self._error.code, self._error.message, self._error.remedy)
        if self._error is not None:
            raise self._error
        self._changed.clear()
        await self._changed.wait()

    async def follow(self, response: HttpResponse) -> None:
        """Read events from the response until it ends or fails."""
        parser = SseParser()
        try:
            while chunk := await self._next(response):
                for message in parser.feed(chunk):
                    type_, event = decode_event(message.data)
                    if event is not None:
                        self._events.append(event)
                    elif type_ == CONNECTED_EVENT:
                        self._connected = True
                        self._changed.set()
                if self._on_events is not None and not self._deliver(self._on_events):
                    return
            self._error = RookeryError("agent-unavailable", "the agent closed its event stream")
        except TimeoutError:
            self._error = RookeryError("timeout", f"the agent sent nothing for {self.silence:g} s")
        except (OSError, ValueError) as error:
            self._error = unreachable_error(error)
        finally:
            self._changed.set()

    def _deliver(self, on_events: Callable[[Sequence[AgentEvent]], None]) -> bool:
        events, self._events = self._events, []
        try:
            on_events(events)
        except Exception as error:
            # An error of the listener and not of the connection, whatever its type.
            self._error = error
        return self._error is None

    async def _next(self, response: HttpResponse) -> bytes:
        async with asyncio.timeout(self.silence):
            return await response.next()


@asynccontextmanager
async def open_event_stream(link: ApiConnection, silence: float = SILENCE_SECONDS) -> AsyncGenerator[EventStream]:
    """Subscribe to the agent's events for the block. Raise RookeryError if that is not possible."""
    tasks = TaskSet("agent events")
    with await link.stream("/event", silence) as response:
        if response.media_type != EVENT_STREAM:
            raise RookeryError(
                "agent-unavailable", f"the agent's event stream has the content type {response.media_type!r}"
            )
        stream = EventStream(silence)
        try:
            tasks.start(stream.follow(response), "stream")
            await stream.wait_until_connected()
            yield stream
        finally:
            await tasks.close()
