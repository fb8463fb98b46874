"""What sign-ins came to, one file each, for the owner's eyes only."""

import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import read_secret, remove, write_secret
from rookery.system.log import REDACTOR
from rookery.system.places import ensure_private_folder
from rookery.upstreams.signin.messages import Grant

logger = logging.getLogger("rookery.upstreams")


class Subject(NamedTuple):
    """Whom a sign-in is for: a server by its name and its address. Neither alone is enough."""

    name: str
    url: str


class _Kept(msgspec.Struct):
    name: str
    grant: Grant


class Grants:
    """Read when somebody first asks for one; afterwards what is in memory counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Subject, Grant | None] = {}

    def get(self, subject: Subject) -> Grant | None:
        if subject not in self._known:
            self._known[subject] = found = self._read(subject)
            for secret in found.secrets() if found is not None else []:
                REDACTOR.add(secret)
        return self._known[subject]

    def put(self, subject: Subject, grant: Grant) -> None:
        """Raises where a grant is for another server than the one that it is to be kept for."""
        if grant.server != subject.url:
            raise RookeryError("sign-in-failed", "the sign-in is for another address than that of the server")
        for secret in grant.secrets():
            REDACTOR.add(secret)
        ensure_private_folder(self._folder, may_be_link=False)
        write_secret(self._file(subject), msgspec.json.encode(_Kept(subject.name, grant)))
        before, self._known[subject] = self._known.get(subject), grant
        self._forget(before, grant)

    def remove(self, subject: Subject) -> None:
        remove(self._file(subject))
        self._known[subject] = None

    def _forget(self, before: Grant | None, now: Grant) -> None:
        """Tokens that were renewed; the log need not be searched for them for ever."""
        for secret in before.secrets() if before is not None else []:
            if secret not in now.secrets():
                REDACTOR.forget(secret)

    def _read(self, subject: Subject) -> Grant | None:
        try:
            data = read_secret(self._file(subject))
            if data is None:
                return None
            kept = msgspec.json.decode(data, type=_Kept)
        except (RookeryError, msgspec.DecodeError) as error:
            logger.warning('the sign-in of MCP server "%s" cannot be used: %s', subject.name, error)
            return None
        # The name of a file proves nothing.
        return kept.grant if (kept.name, kept.grant.server) == subject else None

    def _file(self, subject: Subject) -> Path:
        name = hashlib.sha256("\0".join(subject).encode()).hexdigest()
        return self._folder / f"{name[:32]}.json"
