"""Services start after what they need and stop before it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rookery.daemon.services import Runner, start_order
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@dataclass
class Fake:
    """Writes down what happens to it; goes wrong as told."""

    name: str
    needs: Sequence[str] = ()
    diary: list[str] = field(default_factory=list[str])
    fails_to_start: bool = False
    fails_to_stop: bool = False
    hangs: bool = False

    async def start(self) -> None:
        self.diary.append(f"+{self.name}")
        if self.fails_to_start:
            raise RuntimeError("no")

    async def stop(self) -> None:
        self.diary.append(f"-{self.name}")
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails_to_stop:
            raise RuntimeError("no")


@requirement("house.stop.ordered")
async def test_the_order_is_that_of_the_needs_and_stopping_reverses_it() -> None:
    diary: list[str] = []
    runner = Runner([Fake("c", ["b"], diary), Fake("a", [], diary), Fake("b", ["a"], diary)], 5)
    await runner.start()
    await runner.stop()
    assert diary == ["+a", "+b", "+c", "-c", "-b", "-a"]


async def test_a_start_that_fails_stops_what_had_started_and_itself() -> None:
    diary: list[str] = []
    runner = Runner([Fake("a", [], diary), Fake("b", ["a"], diary, fails_to_start=True), Fake("c", ["b"], diary)], 5)
    with pytest.raises(RuntimeError):
        await runner.start()
    assert diary == ["+a", "+b", "-b", "-a"]


@requirement("house.stop.ordered")
async def test_one_that_hangs_or_fails_does_not_keep_the_others_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary: list[str] = []
    services = [Fake("a", [], diary), Fake("b", ["a"], diary, hangs=True), Fake("c", ["b"], diary, fails_to_stop=True)]
    runner = Runner(services, 0.05)
    await runner.start()
    async with asyncio.timeout(10):
        await runner.stop()
    assert diary[3:] == ["-c", "-b", "-a"]
    assert "b did not stop within 0.05 s" in caplog.text
    assert "c failed to stop" in caplog.text


@pytest.mark.parametrize(
    ("services", "words"),
    [
        ([Fake("a", ["b"])], "needs b"),
        ([Fake("a", ["b"]), Fake("b", ["a"])], "cycle"),
        ([Fake("a"), Fake("a")], "same name"),
    ],
)
async def test_an_order_that_cannot_be_is_refused(services: list[Fake], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        start_order(services)
