"""One request from its arrival to its answer, whatever brought it."""

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from rookery.wire import revisions
from rookery.wire.jsonrpc import (
    EMPTY,
    INTERNAL_ERROR,
    Id,
    Params,
    WireError,
    encode_notification,
    encode_result,
    object_of,
    text_of,
    value_of,
)
from rookery.wire.provider import Ask, Call, Client, InputNeeded, Provider
from rookery.wire.sealing import Seal

if TYPE_CHECKING:
    from rookery.wire.brief import Brief

logger = logging.getLogger("rookery.mcp.wire")

CANCELLED = -32800
_TTL_MS = 0

Questioner = Callable[[Mapping[str, Ask]], Awaitable[Mapping[str, Raw]]]

_requests = itertools.count(1)


@dataclass(slots=True)
class RunningCall:
    """What a provider gets to see; `send` and `question` lead back to the client."""

    id: Id
    method: str
    params: Params
    meta: Params
    client: Client
    log_level: str | None
    send: Callable[[bytes], Awaitable[None]]
    # What a modern client carries for us is sealed, for its owner.
    seal: Seal
    owner: str
    session: str | None = None
    question: Questioner | None = None
    connection: object | None = None
    resumed: bool = False
    caller: str = field(init=False)
    answers: dict[str, Raw] | None = None

    def __post_init__(self) -> None:
        self.caller = self.session or f"request {next(_requests)}"

    @property
    def askable(self) -> bool:
        return self.question is not None

    async def notify(self, method: str, params: Mapping[str, Any] | Raw) -> None:
        await self.send(encode_notification(method, msgspec.json.encode(params)))
        # Nothing is waited for where the client reads fast or has gone; others, and a cancellation, get their turn.
        await asyncio.sleep(0)

    async def ask(self, asks: Mapping[str, Ask]) -> Mapping[str, Any]:
        found = await self.ask_raw(asks)
        return {key: value_of(answer, f"the answer to {key}") for key, answer in found.items()}

    async def ask_raw(self, asks: Mapping[str, Ask]) -> Mapping[str, Raw]:
        for ask in asks.values():
            self.client.must_have(ask.method)
        if self.question is not None:
            return await self.question(asks)
        if self.answers is None:
            self.answers = _inputs(self)
        answers = self.answers
        missing = {key: ask for key, ask in asks.items() if key not in answers}
        if missing:
            raise InputNeeded(missing, answers)
        return {key: answers[key] for key in asks}


def params_of(raw: Raw) -> tuple[Params, Params]:
    """The members of `params` and of its `_meta`."""
    params = object_of(raw)
    meta = params.get("_meta")
    return params, object_of(meta, "_meta") if meta is not None else {}


async def answer(provider: Provider, call: RunningCall, brief: "Brief | None" = None) -> tuple[bytes, int]:
    """The message that answers a call, and the code of its error, 0 for none."""
    try:
        result = await (provider.handle(call) if brief is None else brief.handle(call))
        return encode_result(call.id, finish(result, call.method, call.client, provider)), 0
    except InputNeeded as needed:
        if call.method not in revisions.MAY_ASK:
            error = WireError(INTERNAL_ERROR, f"{call.method} may not ask for input")
            return error.encoded(call.id), error.code
        return encode_result(call.id, _input_required(call, needed)), 0
    except WireError as error:
        return error.encoded(call.id), error.code
    except asyncio.CancelledError:
        raise
    except Exception:
        logger.exception("%s failed", call.method)
        error = WireError(INTERNAL_ERROR, "something went wrong here; the daemon's log tells what")
        return error.encoded(call.id), error.code


def finish(result: Raw | Mapping[str, Any], method: str, client: Client, provider: Provider) -> bytes:
    """The result as the client's revision wants it. What came from elsewhere stays as it came, and only grows."""
    if not client.modern or (isinstance(result, Raw) and method not in revisions.CACHEABLE and _is_finished(result)):
        return bytes(result) if isinstance(result, Raw) else msgspec.json.encode(result)
    members: dict[str, Any] = dict(object_of(result, "result") if isinstance(result, Raw) else result)
    kind = members.setdefault("resultType", "complete")
    if (value_of(kind, "resultType") if isinstance(kind, Raw) else kind) == "input_required":
        return bytes(result) if isinstance(result, Raw) else msgspec.json.encode(result)
    if method in revisions.CACHEABLE:
        members.setdefault("ttlMs", _TTL_MS)
        members.setdefault("cacheScope", "private")
    meta = members.get("_meta")
    known: dict[str, Any] = dict(object_of(meta, "_meta") if isinstance(meta, Raw) else meta or {})
    known.setdefault(revisions.META_SERVER, provider.info)
    members["_meta"] = known
    return msgspec.json.encode(members)


class _Meta(msgspec.Struct):
    server: Raw = msgspec.field(default=Raw(), name=revisions.META_SERVER)


class _Result(msgspec.Struct):
    kind: str = msgspec.field(default="", name="resultType")
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")


_result_decoder = msgspec.json.Decoder(_Result)


def _is_finished(result: Raw) -> bool:
    """Whether a modern server has said all that a modern client wants to hear."""
    try:
        found = _result_decoder.decode(result)
    except (msgspec.DecodeError, RecursionError):
        return False
    return found.kind == "complete" and len(found.meta.server) > 0


def _inputs(call: RunningCall) -> dict[str, Raw]:
    """Answers of this round and of those before it, which the client carried for us."""
    answers: dict[str, Raw] = {}
    if call.method not in revisions.MAY_ASK:
        return answers
    if "requestState" in call.params:
        answers |= call.seal.open(text_of(call.params, "requestState"), bound_to(call))
    return answers | given_inputs(call.params)


def given_inputs(params: Params) -> dict[str, Raw]:
    """What a modern client answers to what it was asked."""
    given = object_of(params.get("inputResponses", EMPTY), "inputResponses")
    for key, response in given.items():
        object_of(response, f"inputResponses.{key}")
    return given


def _input_required(call: RunningCall, needed: InputNeeded) -> bytes:
    return msgspec.json.encode(input_required(needed.asks, call.seal.close(needed.answers, bound_to(call))))


def input_required(asks: Mapping[str, Ask], state: str) -> dict[str, Any]:
    """The result that asks a modern client something, and gives it a state to come back with."""
    asked = {key: {"method": ask.method, "params": ask.params} for key, ask in asks.items()}
    return {"resultType": "input_required", "inputRequests": asked, "requestState": state}


def bound_to(call: Call) -> str:
    """What a sealed state is for: this caller, this method, these arguments."""
    told = (bytes(call.params.get(key, b"")).decode() for key in ("name", "uri", "arguments"))
    return hashlib.sha256(msgspec.json.encode([call.owner, call.method, *told])).hexdigest()
