"""`python -m rookery.upstreams.signin`: one errand, read from stdin. Secrets come and go by its pipes only."""

import asyncio
import logging
import os
import sys

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.signin.callback import Callback, Place
from rookery.upstreams.signin.messages import (
    SERVERS_SECONDS,
    Errand,
    Failed,
    Grant,
    Granted,
    Looked,
    Outcome,
    Redirected,
    Revoked,
    Taken,
    Told,
)

_LONGEST_LINE = 2**20


def say(told: Told) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    errand = msgspec.json.decode(await reader.readline(), type=Errand)
    tasks = TaskSet("sign-in")
    work = tasks.start(_do(errand, reader, tasks), errand.mode)
    try:
        async with asyncio.timeout(errand.seconds + SERVERS_SECONDS):
            say(await work)
    except TimeoutError:
        say(Failed("timeout", "the servers that are asked for a sign-in take too long", "try again later"))
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
    await tasks.close()


async def _do(errand: Errand, reader: asyncio.StreamReader, tasks: TaskSet) -> Outcome:
    from rookery.upstreams.signin.addresses import Rules
    from rookery.upstreams.signin.sdk import import_flow

    flow_type = import_flow()
    callback: Callback | None = None
    try:
        rules = await Rules.of(errand.url)
        rules.check(errand.url)
        callback = await _listening(errand)
        tasks.start(_hear(reader, callback, asyncio.current_task()), "stdin")
        flow = flow_type(errand, rules, say, callback)
        if errand.mode == "revoke":
            return Revoked(await flow.revoke())
        found = await flow.run()
        return Granted(found) if isinstance(found, Grant) else found
    except RookeryError as error:
        if errand.mode == "look" and error.code == "needs-client-registration":
            return Looked(False)
        return Failed(error.code, error.message, error.remedy)
    except Exception as error:
        # Its text may have anything in it.
        return Failed("sign-in-failed", f"something went wrong that should not: {type(error).__name__}")
    finally:
        if callback is not None:
            await callback.close()


async def _listening(errand: Errand) -> Callback:
    """Where the browser is to come back to: as configured, or where it came back to before, or anywhere."""
    terms = errand.terms
    place = Place.of(terms.redirect) if terms.redirect is not None else Place(port=terms.port or 0)
    if errand.mode != "login":
        return Callback(place)
    before: list[str] = (errand.grant.client.get("redirect_uris") or []) if errand.grant is not None else []
    if place.port == 0 and before:
        callback = Callback(Place.of(before[0]))
        try:
            await callback.open()
            return callback
        except RookeryError:
            await callback.close()
    callback = Callback(place)
    await callback.open()
    return callback


async def _hear(reader: asyncio.StreamReader, callback: Callback, work: "asyncio.Task[object] | None") -> None:
    """What a person pasted. At the end of it the daemon has gone, or has no use for this any more."""
    while line := await reader.readline():
        say(Taken(callback.take(msgspec.json.decode(line, type=Redirected).url)))
    if work is not None:
        work.cancel()


if __name__ == "__main__":
    # The SDK would log what it fails on, with everything in it.
    logging.disable()
    asyncio.run(main())
    # To take all of the SDK apart again would take longer than the errand.
    os._exit(0)
