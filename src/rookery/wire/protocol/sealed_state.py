"""What a modern client carries between two rounds of one call: readable by it, but not to be changed or re-used."""

import base64
import hashlib
import hmac
import secrets

import msgspec
from msgspec import Raw

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.wire.jsonrpc import INVALID_PARAMS, WireError

_SECONDS = 600.0


class _State(msgspec.Struct):
    answers: dict[str, Raw]
    bound: str
    until: float


class Seal:
    """Signs with a key of this process; a restart makes every open round start anew."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, seconds: float = _SECONDS) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._seconds = seconds

    def close(self, answers: dict[str, Raw], bound: str) -> str:
        """The answers so far, for just this call (`bound`), for a while."""
        state = msgspec.json.encode(_State(answers, bound, self._clock.wall() + self._seconds))
        return base64.urlsafe_b64encode(self._sign(state) + state).decode()

    def open(self, text: str, bound: str) -> dict[str, Raw]:
        try:
            data = base64.urlsafe_b64decode(text.encode())
            signature, state = data[:32], data[32:]
            # Base64 ignores what it does not know, so that many texts mean the same bytes; only one of them is ours.
            whole = hmac.compare_digest(base64.urlsafe_b64encode(data), text.encode())
            if not whole or not hmac.compare_digest(signature, self._sign(state)):
                raise ValueError
            found = msgspec.json.decode(state, type=_State)
        except ValueError:
            raise WireError(INVALID_PARAMS, "requestState is not one of ours, or was changed") from None
        if found.bound != bound:
            raise WireError(INVALID_PARAMS, "requestState belongs to another call")
        if found.until < self._clock.wall():
            raise WireError(INVALID_PARAMS, "requestState has expired; call again without it")
        return found.answers

    def _sign(self, state: bytes) -> bytes:
        return hmac.digest(self._key, state, hashlib.sha256)
