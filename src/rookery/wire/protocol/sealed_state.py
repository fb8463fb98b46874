"""Signed state that a client of the stateless era carries between two rounds of one call.

The client can read it, but can neither change it nor use it for another call.
"""

import base64
import hashlib
import hmac
import secrets

import msgspec
from msgspec import Raw

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.wire.protocol.messages import INVALID_PARAMS, WireError

_STATE_SECONDS = 600.0


class _State(msgspec.Struct):
    answers: dict[str, Raw]
    bound: str
    until: float


class Seal:
    """Signs state with a key of this process. After a restart every open round has to start again."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, seconds: float = _STATE_SECONDS) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._seconds = seconds

    def seal(self, answers: dict[str, Raw], digest: str) -> str:
        """Return the signed answers so far, valid for the call `digest` and for a limited time."""
        state = msgspec.json.encode(_State(answers, digest, self._clock.wall() + self._seconds))
        return base64.urlsafe_b64encode(self._sign(state) + state).decode()

    def unseal(self, text: str, digest: str) -> dict[str, Raw]:
        """Return the answers in a signed state. Raise WireError if it is changed, expired or for another call."""
        try:
            data = base64.urlsafe_b64decode(text.encode())
            signature = data[:32]
            state = data[32:]
            # Base64 decoding ignores unknown characters, so many texts decode to the same bytes. Only one of them was
            # issued.
            canonical = hmac.compare_digest(base64.urlsafe_b64encode(data), text.encode())
            if not canonical or not hmac.compare_digest(signature, self._sign(state)):
                raise ValueError
            decoded = msgspec.json.decode(state, type=_State)
        except ValueError:
            raise WireError(INVALID_PARAMS, "requestState was not issued by this server, or was changed") from None
        if decoded.bound != digest:
            raise WireError(INVALID_PARAMS, "requestState belongs to another call")
        if decoded.until < self._clock.wall():
            raise WireError(INVALID_PARAMS, "requestState has expired; call again without it")
        return decoded.answers

    def _sign(self, state: bytes) -> bytes:
        return hmac.digest(self._key, state, hashlib.sha256)
