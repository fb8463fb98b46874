"""What all connections of one listener share, and who may come in when there are too many."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from rookery.system.tasks import TaskSet
from rookery.wire.gate import Judge, Refusal

if TYPE_CHECKING:
    from rookery.wire.front import Front


@dataclass(frozen=True)
class Limits:
    header_bytes: int = 32_768
    header_seconds: float = 10.0
    body_bytes: int = 67_108_864
    body_seconds: float = 60.0
    write_seconds: float = 30.0
    keep_alive_seconds: float = 75.0
    connections: int = 512

    def too_large_head(self) -> Refusal:
        told = f"the head of the request is larger than {self.header_bytes} bytes"
        return Refusal(431, "headers-too-large", told)

    def too_large_body(self) -> Refusal:
        return Refusal(413, "body-too-large", f"the body of the request is larger than {self.body_bytes} bytes")


class Door:
    def __init__(self, app: ASGIApp, judge: Judge, limits: Limits) -> None:
        self.app = app
        self.judge = judge
        self.limits = limits
        self.tasks = TaskSet("http")
        self.closing = False
        self.connections: set[Front] = set()
        self.empty = asyncio.Event()
        self.empty.set()
        # Those that have not passed the judge by name yet, in the order they came: they make room, oldest first.
        self.unproven: dict[Front, None] = {}
        # Those on their way out, in that order: they hold no place, and there are never more of them than places.
        self.leaving: dict[Front, None] = {}

    def admit(self, newcomer: "Front") -> None:
        """Let it in; if that is one too many, somebody goes."""
        self.connections.add(newcomer)
        self.unproven[newcomer] = None
        self.empty.clear()
        if self.closing:
            newcomer.cut("shutdown")
        elif len(self.connections) - len(self.leaving) > self.limits.connections:
            oldest = next(iter(self.unproven))
            if oldest is newcomer:
                newcomer.refuse(Refusal(503, "too-many-connections", "too many connections; try again"))
            else:
                oldest.cut("crowded-out")
        if len(self.leaving) > self.limits.connections:
            next(iter(self.leaving)).cut("crowded-out")

    def prove(self, front: "Front") -> None:
        """It has passed the judge by name: it keeps its place."""
        self.unproven.pop(front, None)

    def release(self, front: "Front") -> None:
        """It is on its way out."""
        self.unproven.pop(front, None)
        self.leaving.pop(front, None)
        self.leaving[front] = None

    def forget(self, front: "Front") -> None:
        """It has gone."""
        self.connections.discard(front)
        self.unproven.pop(front, None)
        self.leaving.pop(front, None)
        if not self.connections:
            self.empty.set()
