"""`python -m tests.conformance.serve_stdio`: the fixture on stdio; `--noisy` also prints invalid lines."""

import asyncio
import sys

from rookery.wire.server.service import Service
from rookery.wire.server.stdio import serve_stdio
from tests.conformance.busy import Busy


async def serve() -> None:
    serving = asyncio.ensure_future(serve_stdio(Service(Busy())))
    if "--noisy" in sys.argv:
        await asyncio.sleep(0)
        print("not a message", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(serve())
