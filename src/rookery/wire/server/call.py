"""One call from its request to its response, on any transport."""

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import (
    EMPTY_OBJECT,
    INTERNAL_ERROR,
    Params,
    RequestId,
    WireError,
    decode_object,
    decode_text,
    decode_value,
    encode_notification,
    encode_result,
)
from rookery.wire.protocol.provider import Call, ClientProfile, ClientQuestion, InputNeeded, Provider
from rookery.wire.protocol.sealed_state import Seal

if TYPE_CHECKING:
    from rookery.wire.server.fastpath import FastCall

logger = logging.getLogger("rookery.mcp.wire")

REQUEST_CANCELLED = -32800
_TTL_MS = 0

AskClient = Callable[[Mapping[str, ClientQuestion]], Awaitable[Mapping[str, Raw]]]

_requests = itertools.count(1)


@dataclass(slots=True)
class RunningCall:
    """The call that a provider handles. `send` and `ask_client` reach the client."""

    id: RequestId
    method: str
    params: Params
    meta: Params
    client: ClientProfile
    log_level: str | None
    send: Callable[[bytes], Awaitable[None]]
    # Seals the state that a modern client carries for us.
    seal: Seal
    owner: str
    session: str | None = None
    ask_client: AskClient | None = None
    connection: object | None = None
    conversation: str | None = None
    resumed: bool = False
    caller: str = field(init=False)
    answers: dict[str, Raw] | None = None

    def __post_init__(self) -> None:
        self.caller = self.session or f"request {next(_requests)}"

    @property
    def can_ask(self) -> bool:
        return self.ask_client is not None

    async def notify(self, method: str, params: Mapping[str, Any] | Raw) -> None:
        await self.send(encode_notification(method, msgspec.json.encode(params)))
        # `send` may not wait at all if the client reads fast or is gone. Other tasks, and a cancellation, get a turn
        # here.
        await asyncio.sleep(0)

    async def ask(self, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Any]:
        answers = await self.ask_raw(questions)
        return {key: decode_value(answer, f"the answer to {key}") for key, answer in answers.items()}

    async def ask_raw(self, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Raw]:
        for question in questions.values():
            self.client.require_capability(question.method)
        if self.ask_client is not None:
            return await self.ask_client(questions)
        if self.answers is None:
            self.answers = _collect_inputs(self)
        answers = self.answers
        missing = {key: question for key, question in questions.items() if key not in answers}
        if missing:
            raise InputNeeded(missing, answers)
        return {key: answers[key] for key in questions}


def decode_params(raw: Raw) -> tuple[Params, Params]:
    """Return the members of `params` and of its `_meta`."""
    params = decode_object(raw)
    meta = params.get("_meta")
    return params, decode_object(meta, "_meta") if meta is not None else {}


async def answer_call(provider: Provider, call: RunningCall, fast_call: "FastCall | None" = None) -> tuple[bytes, int]:
    """Handle a call. Return the encoded response, and its error code, which is 0 for none."""
    try:
        result = await (provider.handle(call) if fast_call is None else fast_call.handle(call))
        return encode_result(call.id, finish_result(result, call.method, call.client, provider)), 0
    except InputNeeded as needed:
        if call.method not in revisions.INPUT_METHODS:
            error = WireError(INTERNAL_ERROR, f"{call.method} may not ask for input")
            return error.encode(call.id), error.code
        return encode_result(call.id, _encode_input_required(call, needed)), 0
    except WireError as error:
        return error.encode(call.id), error.code
    except asyncio.CancelledError:
        raise
    except Exception:
        logger.exception("%s failed", call.method)
        error = WireError(INTERNAL_ERROR, "an internal error occurred; see the log of the daemon")
        return error.encode(call.id), error.code


def finish_result(result: Raw | Mapping[str, Any], method: str, client: ClientProfile, provider: Provider) -> bytes:
    """Return the encoded result as the client's revision requires it.

    Raw results keep their members; required ones are added.
    """
    if not client.modern or (
        isinstance(result, Raw) and method not in revisions.CACHEABLE_METHODS and _is_finished(result)
    ):
        return bytes(result) if isinstance(result, Raw) else msgspec.json.encode(result)
    members: dict[str, Any] = dict(decode_object(result, "result") if isinstance(result, Raw) else result)
    kind = members.setdefault("resultType", "complete")
    if (decode_value(kind, "resultType") if isinstance(kind, Raw) else kind) == "input_required":
        return bytes(result) if isinstance(result, Raw) else msgspec.json.encode(result)
    if method in revisions.CACHEABLE_METHODS:
        members.setdefault("ttlMs", _TTL_MS)
        members.setdefault("cacheScope", "private")
    meta = members.get("_meta")
    full_meta: dict[str, Any] = dict(decode_object(meta, "_meta") if isinstance(meta, Raw) else meta or {})
    full_meta.setdefault(revisions.META_SERVER, provider.info)
    members["_meta"] = full_meta
    return msgspec.json.encode(members)


def to_handshake_result(result: Raw) -> Raw:
    """Return a result of a 2026-07-28 server without the members that handshake revisions do not have."""
    if b'"resultType"' not in bytes(result):
        return result
    members: dict[str, Any] = dict(decode_object(result, "result"))
    for key in ("resultType", "ttlMs", "cacheScope"):
        members.pop(key, None)
    if "_meta" in members:
        meta = decode_object(members["_meta"], "_meta")
        members["_meta"] = {key: value for key, value in meta.items() if key != revisions.META_SERVER}
        if not members["_meta"]:
            del members["_meta"]
    return Raw(msgspec.json.encode(members))


class _Meta(msgspec.Struct):
    server: Raw = msgspec.field(default=Raw(), name=revisions.META_SERVER)


class _Result(msgspec.Struct):
    kind: str = msgspec.field(default="", name="resultType")
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")


_result_decoder = msgspec.json.Decoder(_Result)


def _is_finished(result: Raw) -> bool:
    """Return whether a raw result already has everything that a modern client requires."""
    try:
        decoded = _result_decoder.decode(result)
    except (msgspec.DecodeError, RecursionError):
        return False
    return decoded.kind == "complete" and len(decoded.meta.server) > 0


def _collect_inputs(call: RunningCall) -> dict[str, Raw]:
    """Return the answers of this round and of earlier ones, which the client carried in its state."""
    answers: dict[str, Raw] = {}
    if call.method not in revisions.INPUT_METHODS:
        return answers
    if "requestState" in call.params:
        answers |= call.seal.unseal(decode_text(call.params, "requestState"), compute_call_digest(call))
    return answers | decode_input_responses(call.params)


def decode_input_responses(params: Params) -> dict[str, Raw]:
    """Return the answers of a modern client, each of which must be an object."""
    responses = decode_object(params.get("inputResponses", EMPTY_OBJECT), "inputResponses")
    for key, response in responses.items():
        decode_object(response, f"inputResponses.{key}")
    return responses


def _encode_input_required(call: RunningCall, needed: InputNeeded) -> bytes:
    return msgspec.json.encode(
        make_input_required_result(needed.questions, call.seal.seal(needed.answers, compute_call_digest(call)))
    )


def make_input_required_result(questions: Mapping[str, ClientQuestion], state: str) -> dict[str, Any]:
    """Return the result that asks a modern client questions. It sends `state` back with its answers."""
    requests = {key: {"method": question.method, "params": question.params} for key, question in questions.items()}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def compute_call_digest(call: Call) -> str:
    """Return the digest that binds a sealed state to a caller, a method and its arguments."""
    members = (bytes(call.params.get(key, b"")).decode() for key in ("name", "uri", "arguments"))
    return hashlib.sha256(msgspec.json.encode([call.owner, call.method, *members])).hexdigest()
