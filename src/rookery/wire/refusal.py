"""What a server of MCP means by an HTTP error."""

import contextlib

from rookery.wire.channel import ChannelClosed, NoSuchTransport, NotSignedIn, SessionLost
from rookery.wire.http_answer import Answer
from rookery.wire.jsonrpc import Id, Response, WireError, decode
from rookery.wire.remote import challenge_of

# Says that the server does not speak Streamable HTTP, unlike those that say: not you, or not now.
_FOREIGN = frozenset({400, 404, 405, 406, 410, 415, 501}) | frozenset(range(300, 400))


def refusal(answer: Answer, body: bytes, id_: Id | None, *, in_session: bool, spoken: bool) -> Exception | None:
    """None where its body is the answer: a JSON-RPC error, except where it says that the session is lost.

    `spoken` is whether it spoke Streamable HTTP before.
    """
    status, text = answer.status, body[:300].decode("utf-8", "replace")
    if in_session and (status == 404 or (status == 400 and "session" in text.lower())):
        return SessionLost()
    if challenge_of(answer) is not None:
        return NotSignedIn(f"HTTP {status}: {text}")
    with contextlib.suppress(WireError):
        if any(isinstance(one, Response) and one.id == id_ for one in decode(body)):
            return None
    if (location := answer.header(b"location")) is not None:
        text = f"redirects are not followed; this one is to {location[:200]}"
    kind = NoSuchTransport if status in _FOREIGN and not spoken else ChannelClosed
    return kind(f"HTTP {status}: {text}")
