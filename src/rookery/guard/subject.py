"""Content of a repository that the user is asked to approve."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Key(NamedTuple):
    """The identity of a subject of approval, independent of its content."""

    kind: str
    place: str
    name: str


@dataclass(frozen=True)
class Subject:
    """Content to approve. `content` is displayed and approved; `files` are the hashes of the files that it would run.

    `place` is the real path of the checkout that the approval is valid for; the main checkout may stand for all
    workspaces of a project, since each content is approved separately. `source` is where the content was found and
    `folder` where it would run; neither is part of the approval. With a `problem` the content cannot be approved.
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
        fields = [*self.key, self.content, sorted(self.files.items())]
        return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()

    @cached_property
    def sha256(self) -> str:
        """Return the digest of kind, name, content and files alone: the same on every machine and in every folder."""
        files = [(self._portable(path), digest) for path, digest in sorted(self.files.items())]
        fields = ["rookery approval", self.kind, self.name, self.content, files]
        return "sha256:" + hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()

    def _portable(self, path: str) -> str:
        """Return a path that is the same on every machine: files of the main checkout are named relative to it."""
        main = f"{self.place.rstrip('/')}/"
        return f"main checkout: {path.removeprefix(main)}" if path.startswith(main) else path

    @property
    def text(self) -> str:
        """Return the content and its files as text, to store and to compare with the last approval."""
        lines = [f"file {path} sha256 {digest}" for path, digest in sorted(self.files.items())]
        return "\n".join([self.content, *lines])
