"""Rookery is no server of its own: its clients keep its address in the very files that it reads servers from."""

from collections.abc import Collection
from pathlib import PurePath
from urllib.parse import urlsplit

import msgspec

from rookery.upstreams.definition import Definition, Problem
from rookery.upstreams.sources import Found

_HERE = frozenset({"127.0.0.1", "localhost", "::1"})
# What our own entries in the files of clients name; a workspace's port may not be open yet, or not any more.
_TOKEN = "ROOKERY_TOKEN"


def without_ourselves(found: Found, ports: Collection[int], *, noted: bool = True) -> Found:
    """What was found, without those that lead back here: each of them would wait for itself.

    What they lack is the business of their client.
    """
    ours = [one for one in found.servers if _is_bridge(one) or _leads_here(one, ports)]
    if not ours:
        return found
    theirs = {(one.source.path, one.name) for one in ours}
    told = [one for one in found.problems if not (one.note and (one.file, one.server) in theirs)]
    notes = [
        Problem(one.source.path, one.source.line, f'the server "{one.name}" is Rookery itself, and left out', note=True)
        for one in ours
    ]
    others = [one for one in found.servers if one not in ours]
    return msgspec.structs.replace(found, servers=others, problems=[*told, *notes] if noted else told)


def _leads_here(definition: Definition, ports: Collection[int]) -> bool:
    parts = urlsplit(definition.url)
    return parts.hostname in _HERE and (parts.port in ports or _TOKEN in str(definition.written.get("headers")))


def _is_bridge(definition: Definition) -> bool:
    """`rookery bridge`, by whichever path."""
    program, *words = definition.command or ("",)
    return PurePath(program).name == "rookery" and words[:1] == ["bridge"]
