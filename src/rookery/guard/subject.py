"""What a user is asked to approve: something a repository brings along, by its content."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Key(NamedTuple):
    """What is being approved, whatever its content."""

    kind: str
    place: str
    name: str


@dataclass(frozen=True)
class Subject:
    """`content` is what is shown and approved; `files` are the hashes of the files that it would run.

    `place` is the real path of the checkout that the approval holds for; the main checkout's may stand for all
    workspaces of a project, since every content is approved by itself. `source` tells where the content was found and
    `folder` where it would run; they are no part of it. With a `problem` it cannot be approved.
    """

    kind: str
    place: str
    name: str
    content: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    source: str = ""
    problem: str = ""
    folder: str = ""

    @property
    def key(self) -> Key:
        return Key(self.kind, self.place, self.name)

    @cached_property
    def digest(self) -> str:
        written = [*self.key, self.content, sorted(self.files.items())]
        return hashlib.sha256(json.dumps(written, separators=(",", ":")).encode()).hexdigest()

    @property
    def shown(self) -> str:
        """All of it as text, to keep and to compare with what was approved last."""
        named = [f"file {path} sha256 {digest}" for path, digest in sorted(self.files.items())]
        return "\n".join([self.content, *named])
