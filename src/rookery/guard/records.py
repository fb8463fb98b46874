"""Approvals as interfaces show them: the given ones, the pending ones, and the digests of everything."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from rookery.guard.risks import Risk
from rookery.guard.server import ServerDefinition
from rookery.guard.subject import Key

State = Literal["approved", "new", "changed"]
# How an approval was given: by a person at a terminal, or by adding a project for the first time.
By = Literal["terminal", "adding"]


class Approval(msgspec.Struct, frozen=True):
    """One approval. `by` is empty for approvals of earlier versions; `source` is where a digest was named."""

    kind: str
    place: str
    name: str
    digest: str
    content: str
    at: float
    by: str = ""
    source: str = ""

    @property
    def key(self) -> Key:
        return Key(self.kind, self.place, self.name)


class SubjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Content that needs an approval. `sha256` is its digest on every machine, to approve it in advance."""

    kind: str
    place: str
    name: str
    sha256: str
    source: str
    problem: str


class DigestRecord(SubjectRecord, frozen=True, kw_only=True):
    """The digest of some content, and whether the content is approved."""

    state: State


class PendingApproval(SubjectRecord, frozen=True, kw_only=True):
    """Content that waits for approval.

    `shown` is the text that is approved: the content and its files. `last` is the text that was approved last. `parts`
    are those of the definition of an MCP server.
    """

    digest: str
    content: str
    folder: str
    files: Mapping[str, str]
    shown: str
    last: str | None
    parts: ServerDefinition | UnsetType = UNSET
    risks: Sequence[Risk]
    state: State


class ApprovalList(msgspec.Struct, frozen=True):
    """What waits for approval, and what is approved."""

    waiting: Sequence[PendingApproval]
    approved: Sequence[Approval]


class ApprovalGiven(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    place: str
    name: str
    digest: str
    approved: bool = True


class ApprovalRevoked(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    place: str
    name: str
    revoked: bool = True
