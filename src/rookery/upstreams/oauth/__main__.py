"""Run one sign-in request, read from stdin: `python -m rookery.upstreams.oauth`.

Secrets are passed through the pipes only, never as arguments or environment variables.
"""

import asyncio
import logging
import os
import sys

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.oauth.callback import CallbackServer, RedirectAddress
from rookery.upstreams.oauth.messages import (
    NETWORK_SECONDS,
    BrowserRedirect,
    FailureResult,
    Grant,
    GrantResult,
    HelperMessage,
    HelperRequest,
    Outcome,
    ProbeResult,
    RedirectReply,
    RevokeResult,
)

_MAX_LINE_BYTES = 2**20


def send_message(message: HelperMessage) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    request = msgspec.json.decode(await reader.readline(), type=HelperRequest)
    tasks = TaskSet("sign-in")
    work = tasks.start(_run_request(request, reader, tasks), request.mode)
    try:
        async with asyncio.timeout(request.seconds + NETWORK_SECONDS):
            send_message(await work)
    except TimeoutError:
        send_message(
            FailureResult("timeout", "the servers of this sign-in take too long to respond", "try again later")
        )
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
    await tasks.close()


async def _run_request(request: HelperRequest, reader: asyncio.StreamReader, tasks: TaskSet) -> Outcome:
    from rookery.upstreams.oauth.addresses import AddressRules
    from rookery.upstreams.oauth.sdk import import_flow

    flow_type = import_flow()
    callback: CallbackServer | None = None
    try:
        rules = await AddressRules.for_server(request.url, proxies=request.proxies)
        rules.check(request.url)
        callback = await _open_callback(request)
        tasks.start(_read_redirects(reader, callback, asyncio.current_task()), "stdin")
        flow = flow_type(request, rules, send_message, callback)
        if request.mode == "revoke":
            return RevokeResult(await flow.revoke())
        result = await flow.run()
        return GrantResult(result) if isinstance(result, Grant) else result
    except RookeryError as error:
        if request.mode == "look" and error.code == "needs-client-registration":
            return ProbeResult(False)
        return FailureResult(error.code, error.message, error.remedy)
    except Exception as error:
        # The text of this error may contain anything, secrets included.
        return FailureResult("sign-in-failed", f"unexpected error: {type(error).__name__}")
    finally:
        if callback is not None:
            await callback.close()


async def _open_callback(request: HelperRequest) -> CallbackServer:
    """Return the callback server, which is open if the request is a login.

    Its address is the configured one, or else that of the last sign-in, or else any free port.
    """
    terms = request.terms
    address = (
        RedirectAddress.parse(terms.redirect) if terms.redirect is not None else RedirectAddress(port=terms.port or 0)
    )
    if request.mode != "login":
        return CallbackServer(address)
    redirects: list[str] = (request.grant.client.get("redirect_uris") or []) if request.grant is not None else []
    if address.port == 0 and redirects:
        callback = CallbackServer(RedirectAddress.parse(redirects[0]))
        try:
            await callback.open()
            return callback
        except RookeryError:
            await callback.close()
    callback = CallbackServer(address)
    await callback.open()
    return callback


async def _read_redirects(
    reader: asyncio.StreamReader, callback: CallbackServer, work: "asyncio.Task[object] | None"
) -> None:
    """Pass on the addresses that a person pasted, and cancel `work` at the end of the input.

    The input ends when the daemon has exited or does not need the result any more.
    """
    while line := await reader.readline():
        send_message(RedirectReply(callback.accept(msgspec.json.decode(line, type=BrowserRedirect).url)))
    if work is not None:
        work.cancel()


if __name__ == "__main__":
    # The SDK logs the data that it fails on, secrets included.
    logging.disable()
    asyncio.run(main())
    # The normal cleanup of the SDK would take longer than the request.
    os._exit(0)
