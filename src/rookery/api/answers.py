"""Bodies of the REST routes: typed on the way in, JSON on the way out."""

from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rookery.system.errors import RookeryError

T = TypeVar("T", bound=msgspec.Struct)


def answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


async def body_of(request: Request, kind: type[T]) -> T:
    data = await request.body()
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wanted = ", ".join(kind.__struct_fields__)
        raise RookeryError(
            "invalid-input", f"the body does not fit: {error}", f"send an object with: {wanted}"
        ) from error
