"""What a folder holds as the kernel tells it: the call getdents64 of Linux, which CPython wraps entry by entry only."""

import ctypes
import functools
import os
import struct
from collections.abc import Callable

# Most folders are read with one call.
_AT_ONCE = 32 * 2**10
# After inode and offset the length of the record and the type; then the name up to a NUL.
_HEAD = struct.Struct("=16xHB")
UNKNOWN, FOLDER, FILE, LINK = 0, 4, 8, 10


@functools.cache
def _call() -> Callable[..., int] | None:
    """From the C library, since the number of the call differs; None where there is none."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "getdents64", None)
    if found is not None:
        found.restype, found.argtypes = ctypes.c_ssize_t, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    return found


def read(folder: int) -> bytes | None:
    """All records of a folder; None if that is more than one call tells, or cannot be told this way."""
    call = _call()
    if call is None:
        return None
    # A new one each time: the kernel leaves out the bytes between records, and equal folders are to be equal bytes.
    buffer = ctypes.create_string_buffer(_AT_ONCE)
    length = call(folder, buffer, _AT_ONCE)
    found = ctypes.string_at(buffer, max(length, 0))
    if length >= 0 and (length == 0 or call(folder, buffer, _AT_ONCE) == 0):
        return found
    os.lseek(folder, 0, os.SEEK_SET)
    return None


def parsed(records: bytes) -> tuple[list[str], bytes]:
    """The names, and the type of each."""
    names, types = list[bytes](), bytearray()
    place, end = 0, len(records)
    while place < end:
        length, kind = _HEAD.unpack_from(records, place)
        names.append(records[place + _HEAD.size : place + length].rstrip(b"\0"))
        types.append(kind)
        place += length
    return os.fsdecode(b"\0".join(names)).split("\0") if names else [], bytes(types)
