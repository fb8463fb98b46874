"""An editor extension, as far as Rookery sees it: the official Socket.IO client for Python."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import aiohttp
import socketio
from socketio.exceptions import ConnectionError as NotConnected

LIMIT = 20.0


class Editor:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        client.on("*", self._hear)
        client.on("disconnect", self._part)
        client.on("connect_error", self._refused)
        self.parted = asyncio.Event()
        self.refusal: Any = None

    async def _hear(self, event: str, *data: Any) -> None:
        self._heard.put_nowait((event, data[0] if data else None))

    async def _part(self, *_: Any) -> None:
        self.parted.set()

    async def _refused(self, *told: Any) -> None:
        self.refusal = told[0] if told else None

    @property
    def transport(self) -> str:
        return self._client.transport()

    async def connect(self, url: str, transports: Sequence[str] | None, auth: Any) -> None:
        await self._client.connect(url, transports=transports, auth=auth, wait_timeout=LIMIT)

    async def call(self, event: str, *data: Any) -> dict[str, Any]:
        """Send a workspace event, or a name with a colon unchanged, and return the acknowledgement."""
        name = event if ":" in event or not event else f"api:workspace:{event}"
        return await self._client.call(name, data or None, timeout=LIMIT)

    async def data(self, event: str, *data: Any) -> Any:
        acknowledged = await self.call(event, *data)
        assert acknowledged.keys() == {"success", "data"}, acknowledged
        assert acknowledged["success"] is True
        return acknowledged["data"]

    async def code(self, event: str, *data: Any) -> str:
        acknowledged = await self.call(event, *data)
        assert acknowledged.keys() == {"success", "error"}, acknowledged
        assert acknowledged["success"] is False
        assert acknowledged["error"]["message"]
        return acknowledged["error"]["code"]

    async def heard(self, event: str) -> Any:
        """Return the data of the next event of this name."""
        async with asyncio.timeout(LIMIT):
            while True:
                name, data = await self._heard.get()
                if name == event:
                    return data

    def heard_so_far(self) -> list[str]:
        return [self._heard.get_nowait()[0] for _ in range(self._heard.qsize())]


@contextlib.asynccontextmanager
async def editor(
    url: str,
    token: str | None,
    *,
    transports: Sequence[str] | None = ("websocket",),
    path: Any = None,
    headers: Mapping[str, str] | None = None,
    unix: str | None = None,
) -> AsyncGenerator[Editor]:
    """Yield a connected client, with `path` as its workspace if given."""
    sent = {**({"Authorization": f"Bearer {token}"} if token is not None else {}), **(headers or {})}
    connector = aiohttp.UnixConnector(unix) if unix is not None else aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector, headers=sent) as session:
        client: Any = socketio.AsyncClient(reconnection=False, http_session=session)
        made = Editor(client)
        try:
            await made.connect(url, transports, {"workspacePath": path} if path is not None else None)
            yield made
        except NotConnected as error:
            # The reason comes by an event.
            error.add_note(str(made.refusal))
            raise
        finally:
            await client.disconnect()
            await asyncio.sleep(0)
