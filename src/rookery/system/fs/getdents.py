"""Read a folder with one getdents64 call (Linux). CPython returns entries only one by one."""

import ctypes
import functools
import os
import struct
from collections.abc import Callable

# Large enough to read most folders with one call.
_BUFFER_BYTES = 32 * 2**10
# A record: inode and offset (skipped), length of the record, type; then the name up to a NUL.
_HEAD = struct.Struct("=16xHB")
UNKNOWN, FOLDER, FILE, LINK = 0, 4, 8, 10


@functools.cache
def _load_getdents() -> Callable[..., int] | None:
    """Return getdents64 of the C library, since the call number varies by architecture; None if there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "getdents64", None)
    if function is not None:
        function.restype, function.argtypes = ctypes.c_ssize_t, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    return function


def read_entries(folder: int) -> bytes | None:
    """Return all records of a folder; None if one call does not return them all, or there is no such call."""
    call = _load_getdents()
    if call is None:
        return None
    # A new buffer each time: the kernel does not write the padding, and equal folders must give equal bytes.
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    length = call(folder, buffer, _BUFFER_BYTES)
    records = ctypes.string_at(buffer, max(length, 0))
    if length >= 0 and (length == 0 or call(folder, buffer, _BUFFER_BYTES) == 0):
        return records
    os.lseek(folder, 0, os.SEEK_SET)
    return None


def parse_entries(records: bytes) -> tuple[list[str], bytes]:
    """Return the names, and the type of each."""
    names, types = list[bytes](), bytearray()
    offset, end = 0, len(records)
    while offset < end:
        length, kind = _HEAD.unpack_from(records, offset)
        names.append(records[offset + _HEAD.size : offset + length].rstrip(b"\0"))
        types.append(kind)
        offset += length
    return os.fsdecode(b"\0".join(names)).split("\0") if names else [], bytes(types)
