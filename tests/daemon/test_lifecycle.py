"""Services start after the services that they need and stop before them."""

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rookery.daemon.lifecycle import ServiceRunner, order_services
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
    stops_with: Exception | None = None

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
        if self.stops_with is not None:
            raise self.stops_with


@requirement("house.stop.ordered")
async def test_the_order_is_that_of_the_needs_and_stopping_reverses_it() -> None:
    diary: list[str] = []
    runner = ServiceRunner([Fake("c", ["b"], diary), Fake("a", [], diary), Fake("b", ["a"], diary)], 5)
    await runner.start()
    await runner.stop()
    assert diary == ["+a", "+b", "+c", "-c", "-b", "-a"]


async def test_a_start_that_fails_stops_what_had_started_and_itself() -> None:
    diary: list[str] = []
    runner = ServiceRunner(
        [Fake("a", [], diary), Fake("b", ["a"], diary, fails_to_start=True), Fake("c", ["b"], diary)], 5
    )
    with pytest.raises(RuntimeError):
        await runner.start()
    assert diary == ["+a", "+b", "-b", "-a"]


async def test_what_fails_to_stop_after_a_start_that_failed_is_a_note_of_that(caplog: pytest.LogCaptureFixture) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/state/instances.json")
    services = [Fake("a", stops_with=full), Fake("b", ["a"], fails_to_start=True, fails_to_stop=True)]
    with pytest.raises(RuntimeError, match="no") as caught:
        await ServiceRunner(services, 5).start()
    told = ["b failed to stop: RuntimeError: no", "a failed to stop: the disk is full: /state/instances.json"]
    assert caught.value.__notes__ == told
    assert "failed to stop" not in caplog.text


@requirement("house.stop.ordered")
async def test_one_that_hangs_or_fails_does_not_keep_the_others_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary: list[str] = []
    services = [Fake("a", [], diary), Fake("b", ["a"], diary, hangs=True), Fake("c", ["b"], diary, fails_to_stop=True)]
    runner = ServiceRunner(services, 0.05)
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
        order_services(services)
