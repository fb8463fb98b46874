"""What a path that somebody gave means: plain names beneath the root, taken literally, or an error that says why."""

import functools
import os
import re
from pathlib import Path, PurePosixPath

from rookery.system.errors import RookeryError
from rookery.system.visible import visible

# What the kernel takes: the last byte of a path is its end.
_LONGEST_PATH = 4095
_LONGEST_NAME = 255
_SHOWN = 200
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://?")
# Only bare: `aux.c` is a file like any other where we run.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])", re.IGNORECASE)


# The same files are read again and again.
@functools.lru_cache(maxsize=512)
def parse(path: str, root: Path) -> tuple[str, ...]:
    """The names that `path` consists of, `..` among them; none for the root itself.

    An absolute path is taken if it begins with the root's own. Nothing is expanded, decoded or normalised.
    """
    _check(path)
    if path.startswith("/"):
        try:
            path = str(PurePosixPath(path).relative_to(root))
        except ValueError:
            raise outside(path) from None
    names = tuple([name for name in path.split("/") if name and name != "."])
    for name in names:
        if name != "..":
            _check_name(name, path)
    if ".." in names and _leads_out(names):
        raise outside(path)
    return names


def outside(path: str) -> RookeryError:
    return RookeryError(
        "path-outside-root",
        f"Path outside project root: {shown(path)}",
        "name a file or folder of this workspace, relative to its root; links are followed only if they are relative "
        "and stay inside",
    )


def shown(path: str) -> str:
    """A path as it may stand in a message."""
    return visible(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…")


def _leads_out(names: tuple[str, ...]) -> bool:
    """Whether the names alone lead out, whatever links there are: then nothing is opened at all."""
    depth = 0
    for name in names:
        depth += -1 if name == ".." else 1
        if depth < 0:
            return True
    return False


def _check(path: str) -> None:
    if not path:
        raise _unfit(path, "a path is empty", "use . for the root")
    if "\0" in path:
        raise _unfit(path, "a path has a NUL character in it")
    try:
        length = len(path) if path.isascii() else len(os.fsencode(path))
    except UnicodeEncodeError:
        raise _unfit(path, "a path cannot be written in the file system's encoding") from None
    if length > _LONGEST_PATH:
        raise _unfit(path, f"a path is longer than {_LONGEST_PATH} bytes")
    if _SCHEME.match(path):
        raise _unfit(path, "a path is expected, not a URL")


def _check_name(name: str, path: str) -> None:
    if len(name) * 4 > _LONGEST_NAME and len(os.fsencode(name)) > _LONGEST_NAME:
        raise _unfit(path, f"a name in the path is longer than {_LONGEST_NAME} bytes")
    if "\\" in name or ":" in name or name.endswith((" ", ".")) or _RESERVED.fullmatch(name):
        raise _unfit(path, "a path of Windows' kind (backslash, colon, device, or a dot or blank at a name's end)")


def _unfit(path: str, why: str, remedy: str = "name a file or folder relative to the root, as in a/b") -> RookeryError:
    return RookeryError("invalid-input", f"{why}: {shown(path)}" if path else why, remedy)
