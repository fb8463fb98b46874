"""A fake docker engine on a Unix socket: it lists containers and returns their logs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web


@dataclass
class FakeDocker:
    """A fake engine. `logs` are by the id of the container, as the engine sends them."""

    containers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    logs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: list[str] = field(default_factory=list[str])
    # Set while it answers.
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, name: str, status: str, folder: Path | None, log: bytes = b"", state: str = "running") -> None:
        labels = {"com.docker.compose.project.working_dir": str(folder)} if folder is not None else {}
        self.containers.append(
            {"Id": f"id-{name}", "Names": [f"/{name}"], "Image": "nginx:1", "State": state, "Status": status}
            | {"Labels": labels, "Ports": [], "Created": 1}
        )
        self.logs[f"id-{name}"] = log


def framed(*lines: tuple[int, str]) -> bytes:
    """Return the output of a container without a terminal: stream (1 or 2) and length before each piece."""
    pieces = [(stream, f"{text}\n".encode()) for stream, text in lines]
    return b"".join(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for stream, data in pieces)


@asynccontextmanager
async def start_docker(socket: Path) -> AsyncGenerator[FakeDocker]:
    docker = FakeDocker()
    docker.answers.set()

    async def listed(request: web.Request) -> web.StreamResponse:
        docker.asked.append(str(request.rel_url))
        await docker.answers.wait()
        return web.json_response(docker.containers)

    async def log(request: web.Request) -> web.StreamResponse:
        docker.asked.append(str(request.rel_url))
        # In chunks of no known sum, as the engine does it.
        answer = web.StreamResponse(headers={"Content-Type": "application/vnd.docker.multiplexed-stream"})
        await answer.prepare(request)
        await answer.write(docker.logs[request.match_info["id"]])
        await answer.write_eof()
        return answer

    app = web.Application()
    app.add_routes([web.get("/containers/json", listed), web.get("/containers/{id}/logs", log)])
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        yield docker
    finally:
        docker.answers.set()
        await runner.cleanup()
