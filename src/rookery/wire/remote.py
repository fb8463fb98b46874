"""What all channels to a server at a URL have in common."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import aiohttp

_BODY_BYTES = 64 * 2**20
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10.0)


@dataclass
class Remote:
    """`session` is made once by the application and shared: making one costs more than a hundred calls."""

    session: aiohttp.ClientSession
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    gone: str | None = field(default=None, init=False)
    uses_headers: bool = field(default=True, init=False)

    def exchange(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """One request. Redirects are not followed: our headers and messages go nowhere else."""
        return self.session.request(method, url, data=data, headers=headers, timeout=_TIMEOUT, allow_redirects=False)


def told(error: Exception) -> str:
    """What went wrong on the way, for people."""
    return f"{type(error).__name__}: {error}"


async def whole_body(response: aiohttp.ClientResponse) -> bytes:
    """A ValueError where it is beyond all measure."""
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > _BODY_BYTES:
            raise ValueError(f"the answer is larger than {_BODY_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)
