"""The scripted model as clients use it, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rookery.system.errors import RookeryError
from rookery.testing.model import ScriptedModel, scripted_model
from rookery.wire.http_client.sse import SseParser
from tests.support.agents.completions import body, user
from tests.support.http.listener import within_limit
from tests.support.requirements import requirement
from tests.support.tasks import require_no_tasks_since

pytestmark = pytest.mark.anyio

HELLO = {"step": [{"say": "Hello there"}]}


class Caller:
    """A client of one model."""

    def __init__(self, model: ScriptedModel, http: aiohttp.ClientSession) -> None:
        self.model = model
        self.http = http
        self.root = model.url.removesuffix("/v1")

    async def complete(self, text: str = "Go", session: str = "ses_1", **more: Any) -> tuple[int, Any]:
        async with self.post(text, session, **more) as answer:
            return answer.status, await answer.json(content_type=None)

    def post(self, text: str = "Go", session: str = "ses_1", **more: Any) -> Any:
        headers = {"x-session-id": session}
        return self.http.post(f"{self.model.url}/chat/completions", json=body([user(text)], **more), headers=headers)

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.http.get(self.root + path) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def calling(script: Any, **more: Any) -> AsyncGenerator[Caller]:
    before = asyncio.all_tasks()
    async with scripted_model(script, **more) as model, aiohttp.ClientSession() as http:
        async with asyncio.timeout(30):
            yield Caller(model, http)
    require_no_tasks_since(before)


@requirement("kit.model.scripted")
async def test_a_stream_is_server_sent_events_with_text_calls_usage_and_an_end() -> None:
    script = {"step": [{"say": "Look: ", "call": "bash", "with": {"command": "ls"}}, {"say": "x"}]}
    async with calling(script) as caller, caller.post(stream=True) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        events = SseParser().feed(await answer.read())
    assert events[-1].data == b"[DONE]"
    chunks = [json.loads(event.data) for event in events[:-1]]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert chunks[1]["choices"][0]["delta"] == {"content": "Look: "}
    assert chunks[-1]["usage"]["total_tokens"] > 0


async def test_an_answer_can_be_had_as_a_whole() -> None:
    async with calling(HELLO) as caller:
        status, answer = await caller.complete()
        assert status == 200
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello there"}
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert (await caller.get("/v1/models"))[1]["data"][0]["id"] == "scripted"


@requirement("kit.model.face")
async def test_a_request_outside_the_script_is_a_final_error_naming_the_nearest_step() -> None:
    async with calling({"conversation": [{"name": "tour", "when": "tour", **HELLO_TURN}]}) as caller:
        status, answer = await caller.complete("Do a tuor, overloaded with 503")
        assert status == 400
        assert answer["error"]["type"] == "invalid_request_error"
        told = answer["error"]["message"]
        assert told.startswith("the script has no reply to this request: no conversation of the script matches session")
        assert 'The nearest step is conversation "tour", turn 1, step 1' in told
        assert "overloaded" not in told
        (record,) = caller.model.requests.unforeseen
        assert "overloaded with 503" in str(record.problem)
        assert (record.conversation, record.turn, record.step, record.ended) == (1, 1, 1, "answered")


HELLO_TURN = {"turn": [HELLO]}


@pytest.mark.parametrize("sent", [b"{", b"[]", b'{"messages": []}', b'{"messages": [{"content": "x"}]}'])
async def test_what_is_no_request_is_a_final_error(sent: bytes) -> None:
    kind = {"content-type": "application/json"}
    async with calling(HELLO) as caller:
        async with caller.http.post(f"{caller.model.url}/chat/completions", data=sent, headers=kind) as answer:
            assert answer.status == 400
            assert "not a chat completion request" in (await answer.json())["error"]["message"]
        assert [record.kind for record in caller.model.requests] == ["malformed"]


@requirement("kit.model.face")
async def test_the_log_can_be_asked_for_by_session(tmp_path: Path) -> None:
    async with calling(HELLO, log=tmp_path / "log.jsonl") as caller:
        await caller.complete(session="a")
        await caller.complete(session="b")
        status, found = await caller.get("/requests")
        assert status == 200
        assert [(one["number"], one["session"], one["ended"]) for one in found["requests"]] == [
            (1, "a", "answered"),
            (2, "b", "answered"),
        ]
        assert found["dropped"] == 0
        assert [one["number"] for one in (await caller.get("/requests?session=b"))[1]["requests"]] == [2]
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["session"] for line in lines] == ["a", "b"]
        assert json.loads(lines[0])["request"]["messages"] == [user("Go")]


async def test_no_key_stands_in_the_log() -> None:
    async with calling(HELLO, key="s3cret") as caller:
        status, answer = await caller.complete()
        assert (status, answer["error"]["type"]) == (401, "authentication_error")
        assert (await caller.get("/requests"))[0] == 401
        caller.http.headers.update({"authorization": "Bearer s3cret"})
        assert (await caller.complete())[0] == 200
        status, found = await caller.get("/requests")
        assert len(found["requests"]) == 1
        assert "s3cret" not in json.dumps(found)


async def test_errors_are_as_the_script_has_them() -> None:
    steps = [{"error": 503, "message": "busy", "retry_after": 0.5, "times": 1}, {"error": 418}]
    async with calling({"step": steps}) as caller:
        async with caller.post() as answer:
            assert answer.status == 503
            assert answer.headers["retry-after-ms"] == "500"
            assert (await answer.json())["error"]["message"] == "busy"
        status, told = await caller.complete()
        assert (status, told["error"]["message"]) == (418, "scripted error 418")


@requirement("kit.model.scripted")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_disconnect_cuts_the_answer_off_in_the_middle(stream: bool) -> None:
    async with calling({"step": [{"disconnect": True, "say": "Half of"}]}) as caller:
        async with caller.post(stream=stream) as answer:
            assert answer.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        await caller.model.requests.wait_for(lambda record: record.ended == "cut-off")
        # The next one is served all the same.
        assert (await caller.get("/v1/models"))[0] == 200


async def test_a_step_is_held_until_it_is_released() -> None:
    steps = [{"say": "One.", "hold": "gate"}]
    async with calling({"turn": [{"step": steps}]}) as caller:
        waiting = asyncio.ensure_future(caller.complete())
        await caller.model.requests.wait_for(lambda record: record.step == 1)
        assert not waiting.done()
        async with caller.http.post(f"{caller.root}/release/gate", json={}) as answer:
            assert await answer.json() == {"released": "gate"}
        assert (await waiting)[0] == 200
        assert (await caller.complete())[0] == 200


async def test_a_client_that_goes_is_noticed_in_the_log() -> None:
    for step in ({"say": "x", "hold": "for ever"}, {"say": "x", "delay": 3600}, {"say": "x y z", "pace": 3600}):
        async with calling({"step": [step]}) as caller:
            waiting = asyncio.ensure_future(caller.complete(stream=True))
            await caller.model.requests.wait_for(lambda record: record.number == 1)
            waiting.cancel()
            gone = await caller.model.requests.wait_for(lambda record: record.ended is not None)
            assert gone.ended == "client-gone"


async def test_what_is_being_held_ends_with_the_model() -> None:
    async with calling({"step": [{"say": "x", "hold": "for ever"}]}) as caller:
        waiting = asyncio.ensure_future(caller.complete())
        await caller.model.requests.wait_for(lambda record: record.number == 1)
    with pytest.raises(aiohttp.ClientError):
        await within_limit(waiting)


async def test_delay_and_pace_change_nothing_but_the_time() -> None:
    script = {"step": [{"say": "a b c", "delay": 0.01, "pace": 0.01}]}
    async with calling(script) as caller, caller.post(stream=True) as answer:
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


async def test_another_script_can_be_played_and_a_wrong_path_is_told() -> None:
    async with calling(HELLO) as caller:
        caller.model.play({"step": [{"say": "New."}]})
        assert caller.model.script.count()["steps"] == 1
        assert (await caller.complete())[1]["choices"][0]["message"]["content"] == "New."
        status, answer = await caller.get("/chat/completions")
        assert status == 404
        assert "ends in /v1" in answer["error"]["message"]


async def test_only_this_machine_under_its_own_name_is_answered() -> None:
    async with calling(HELLO) as caller:
        async with caller.http.get(f"{caller.root}/requests", headers={"host": "evil.example"}) as answer:
            assert answer.status == 421
        async with caller.http.get(f"{caller.root}/requests", headers={"origin": "https://evil.example"}) as answer:
            assert answer.status == 403


async def test_a_port_that_is_taken_is_refused() -> None:
    async with calling(HELLO) as caller:
        port = int(caller.root.rpartition(":")[2])
        with pytest.raises(RookeryError) as caught:
            async with scripted_model(HELLO, port=port):
                pass
        assert caught.value.code == "port-taken"
