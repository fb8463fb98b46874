"""Approvals given in advance, by the digest of exact content, for machines without a user at a terminal.

The owner names digests in a file outside any repository, or in a variable of the environment that the daemon is started
with. They are read once, at the start. See `Subject.sha256` for what a digest covers.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain

VARIABLE = "ROOKERY_APPROVE"
FILE_VARIABLE = "ROOKERY_APPROVALS_FILE"
FILE_NAME = "approvals"

_LARGEST_FILE = 1_000_000
_MOST_LINKS = 40
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_LINE_FORMAT = (
    "a line is sha256: and 64 hexadecimal digits, optionally followed by a comment; see: rookery guard digest"
)
_OUTSIDE = f"keep it outside of all repositories, and name it in {FILE_VARIABLE}"


def load_digests(environment: Mapping[str, str], config_folder: Path) -> dict[str, str]:
    """Return each digest that the owner approves in advance, and where it is named.

    Raise `RookeryError` for a file that others could have written, and for an entry that is not a complete digest.
    """
    sources: dict[str, str] = {}
    configured = environment.get(FILE_VARIABLE)
    if configured and not Path(configured).is_absolute():
        raise RookeryError(
            "invalid-settings", f"{FILE_VARIABLE} is not an absolute path: {configured}", "use an absolute path"
        )
    path = Path(configured) if configured else config_folder / FILE_NAME
    if configured or os.path.lexists(path):
        for number, digest in _parse_digests(_read(path), str(path)):
            sources.setdefault(digest, f"{path}:{number}")
    for _, digest in _parse_digests(environment.get(VARIABLE, ""), VARIABLE):
        sources.setdefault(digest, f"variable {VARIABLE}")
    return sources


def _parse_digests(text: str, source: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        first = line.split(maxsplit=1)[:1]
        if not first or first[0].startswith("#"):
            continue
        if not _DIGEST.match(first[0]):
            raise RookeryError(
                "invalid-settings", f"{source}: line {number} does not begin with a digest", _LINE_FORMAT
            )
        yield number, first[0]


def _read(path: Path) -> str:
    """Return the text of a file that only the owner or the administrator can have written."""
    try:
        real = path.resolve(strict=True)
        for spelling in _resolve_links(path):
            if repository := _repository_around(spelling):
                raise RookeryError("unsafe-file", f"{path} is inside the repository {repository}", _OUTSIDE)
        for part in (real, *real.parents):
            _require_unshared(part)
        return read_plain(real, _LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not in UTF-8"
        raise RookeryError("invalid-settings", f"{path} cannot be read: {why}", "repair or remove it") from error


def _resolve_links(path: Path) -> Iterator[Path]:
    """Yield a path with one symbolic link after the other resolved; the creator of any link controls the file."""
    yield path
    for _ in range(_MOST_LINKS):
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is None:
            return
        path = link.parent / link.readlink() / path.relative_to(link)
        yield path
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _repository_around(path: Path) -> Path | None:
    """Return the checkout or bare repository that contains a file."""
    for folder in path.parents:
        if os.path.lexists(folder / ".git") or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return folder
    return None


def _require_unshared(path: Path) -> None:
    """Raise if another user may replace the file at this path. In a sticky folder only owners rename their files."""
    status = path.lstat()
    if status.st_uid not in (os.getuid(), 0):
        raise RookeryError("unsafe-file", f"{path} belongs to another user (uid {status.st_uid})", _OUTSIDE)
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not sticky:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise RookeryError("unsafe-file", f"{path} can be written by others (mode {mode})", f"chmod go-w {path}")
