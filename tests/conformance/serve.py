"""`python -m tests.conformance.serve`: the fixture on a port of its own, which is printed."""

import asyncio
import signal

from rookery.wire.front import Limits
from rookery.wire.gate import Tokens, tcp_judge
from rookery.wire.listener import Listener, bind_port
from rookery.wire.streamable import StreamableHttp
from tests.conformance.fixture import Fixture


async def serve() -> None:
    sock = bind_port(0)
    assert sock is not None
    port = sock.getsockname()[1]
    app = StreamableHttp(Fixture())
    listener = Listener(sock, app, tcp_judge(port, Tokens(), require_token=False), Limits())
    await listener.start()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"http://127.0.0.1:{port}/mcp", flush=True)
    await stop.wait()
    app.close()
    await listener.stop(2)


if __name__ == "__main__":
    asyncio.run(serve())
