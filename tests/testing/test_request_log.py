"""Requests can be asserted on, waited for, and read from a file."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.testing.player import ScriptPosition
from rookery.testing.request_log import RequestLog
from tests.support.agents.completions import asked, called, result, user
from tests.support.http.listener import within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

REQUEST = asked([user("Go"), called("bash"), result("one")], tools=["bash"])


@requirement("kit.model.face")
async def test_a_record_tells_what_came_and_which_step_answered() -> None:
    log = RequestLog()
    made = log.add("step", REQUEST, ScriptPosition(1, "login", 2, 3))
    assert (made.number, made.kind, made.session, made.user) == (1, "step", "ses_1", "Go")
    assert (made.replies, made.tools, made.results) == (1, ("bash",), ("one",))
    assert (made.conversation, made.turn, made.step) == (1, 2, 3)
    assert made.body["messages"][0] == {"role": "user", "content": "Go"}
    assert list(log) == [log[0]] == list(log[:1])


async def test_a_request_can_be_waited_for() -> None:
    log = RequestLog()
    waiting = asyncio.ensure_future(log.wait_for(lambda record: record.kind == "unforeseen"))
    ended = asyncio.ensure_future(log.wait_for(lambda record: record.ended == "cut-off"))
    await asyncio.sleep(0)
    first = log.add("step", REQUEST)
    second = log.add("unforeseen", None, problem="why")
    assert await within_limit(waiting) is second
    assert log.unforeseen == [second]
    assert not ended.done()
    log.end(first, "cut-off")
    assert await within_limit(ended) is first
    assert await within_limit(log.wait_for(lambda record: True)) is first


async def test_only_the_last_requests_are_kept_and_the_rest_is_counted() -> None:
    log = RequestLog(max_requests=2)
    for _ in range(5):
        log.add("step", REQUEST)
    assert [record.number for record in log] == [4, 5]
    assert (len(log), log.dropped) == (2, 3)


@requirement("kit.model.face")
async def test_the_file_has_a_line_a_request_and_is_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    for _ in range(2):
        log = RequestLog(file)
        log.add("step", REQUEST, ScriptPosition(1))
        log.close()
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert first["request"]["messages"] == second["request"]["messages"] == REQUEST_MESSAGES
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


REQUEST_MESSAGES = json.loads(bytes(REQUEST.raw))["messages"]


async def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RookeryError) as caught:
        RequestLog(tmp_path / "none" / "log.jsonl")
    assert "cannot be written" in caught.value.message
