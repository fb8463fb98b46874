"""Servers as child processes that misbehave in many ways; the client neither hangs nor ends."""

import asyncio
import base64
import os
import signal
from typing import Any

import psutil
import pytest
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.client.client import Timeouts
from rookery.wire.protocol.messages import Notification
from tests.support.mcp.client import LIMIT, CallRecorder, ConnectedClient, connect, odd, read, text, within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SHORT = 0.3


async def call(met: ConnectedClient, name: str, **arguments: Any) -> Any:
    return text(await within_limit(met.client.call_tool(name, arguments)))


async def noise(met: ConnectedClient, data: bytes) -> Any:
    return await call(met, "noise", bytes=base64.b64encode(data).decode())


def said(data: bytes) -> bytes:
    """A notification, by which a test sees that the reading goes on."""
    return b'{"jsonrpc":"2.0","method":"notifications/seen","params":{"n":%b}}' % data


# ---- the handshake


@requirement("wire.client.stdio", "wire.handshake.client", "wire.fields.kept")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_local_server_is_spoken_to_in_each_handshake_revision(revision: str) -> None:
    async with connect(odd("--revision", revision)) as met:
        assert (met.era, met.client.revision) == ("handshake", revision)
        assert met.client.capabilities == {"tools": {"listChanged": True}, "logging": {}}
        assert met.client.info == {"name": "odd"}
        tools = await within_limit(met.client.list_all("tools/list", "tools"))
        assert b'"x-unknown": [1e400, 12345678901234567890]' in bytes(tools[0])
        result = await within_limit(met.client.call_tool("echo", {"ü": ["\n", "\u2028", "😀"]}))
        assert (text(result), read(result)["x-unknown"]) == ({"ü": ["\n", "\u2028", "😀"]}, {"kept": True})
        assert await call(met, "told") == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
            "tools/call",
        ]


@requirement("wire.client.era")
async def test_an_era_that_is_known_is_not_asked_for_again() -> None:
    async with connect(odd(), known="handshake") as met:
        assert await call(met, "told") == ["initialize", "notifications/initialized", "tools/call"]


async def test_arguments_that_are_relayed_with_line_breaks_are_still_one_line() -> None:
    async with connect(odd(), known="handshake") as met:
        result = await within_limit(met.client.call_tool("echo", Raw(b'{\r\n  "a": "x\\ny",\n  "b": 1\n}')))
        assert text(result) == {"a": "x\ny", "b": 1}


async def test_a_revision_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(RookeryError, match="1999-01-01"):
        async with connect(odd("--revision", "1999-01-01")):
            pass


@requirement("wire.client.era")
async def test_a_server_that_ends_at_the_modern_question_is_started_again_and_greeted() -> None:
    async with connect(odd("--discover", "exit")) as met:
        assert met.era == "handshake"
        assert await call(met, "told") == ["initialize", "notifications/initialized", "tools/call"]


@requirement("wire.client.era")
async def test_a_server_that_keeps_silent_at_the_modern_question_is_greeted_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.wire.client.connect._PROBE_SECONDS", 0.5)
    async with connect(odd("--discover", "silent")) as met:
        assert met.era == "handshake"
        assert await call(met, "echo", a=1) == {"a": 1}


# ---- C20: answers and questions that nobody waits for


@requirement("wire.client.survives")
async def test_c20_stray_and_duplicate_answers_are_counted_and_change_nothing() -> None:
    channel = odd()
    async with connect(channel) as met:
        assert await call(met, "stray") == "first"
        assert await call(met, "echo", still="here") == {"still": "here"}
        assert channel.strays == 5


@requirement("wire.client.survives", "wire.cancel.progress")
async def test_c20_a_late_answer_and_late_progress_after_a_cancel_are_ignored() -> None:
    channel = odd()
    async with connect(channel) as met:
        ear = CallRecorder()
        calling = asyncio.create_task(met.client.call_tool("hang", {}, ear))
        await met.heard.wait_for("notifications/begun")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within_limit(calling)
        cancelled = await met.heard.wait_for("notifications/heard-cancel")
        assert cancelled["reason"] == "cancelled"
        assert (ear.progress, met.client.strays, channel.strays) == ([], 1, 1)
        assert await call(met, "echo", a=1) == {"a": 1}


@requirement("wire.client.survives", "wire.cancel.progress")
async def test_c20_progress_during_the_sending_of_a_cancellation_does_not_end_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with connect(odd()) as met:
        saying, go = asyncio.Event(), asyncio.Event()
        send = met.client.transport.send

        async def slowly(message: bytes, headers: Any) -> None:
            if b"notifications/cancelled" in message:
                saying.set()
                await go.wait()
            await send(message, headers)

        monkeypatch.setattr(met.client.transport, "send", slowly)
        calling = asyncio.create_task(met.client.call_tool("progress", {}, CallRecorder()))
        await met.heard.wait_for("notifications/begun")
        calling.cancel()
        await within_limit(saying.wait())
        await met.client.notify("notifications/step", {})
        assert await call(met, "echo", a=1) == {"a": 1}
        assert met.client.strays == 1
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await within_limit(calling)


@requirement("wire.client.survives")
async def test_c20_a_question_with_the_id_of_one_that_is_being_answered_is_answered_once() -> None:
    go = asyncio.Event()

    async def think(method: str, params: Any) -> dict[str, Any]:
        await go.wait()
        return {"roots": []}

    question = {"id": "q", "method": "roots/list"}
    async with connect(odd(), known="handshake", answerer=think) as met:
        asked = [question, question, {"method": "notifications/asked"}]
        calling = asyncio.create_task(call(met, "ask", questions=asked, answers=1))
        await met.heard.wait_for("notifications/asked")
        go.set()
        assert await within_limit(calling) == [{"id": "q", "result": {"roots": []}}]
        assert (await call(met, "told")).count("answer q") == 1
        assert met.client.strays == 1


@requirement("wire.client.survives")
async def test_c20_a_question_that_nobody_here_answers_is_refused_with_32601() -> None:
    questions = [{"id": n, "method": method} for n, method in enumerate(("sampling/createMessage", "no/such", "ping"))]
    async with connect(odd(), answerer=None) as met:
        found = await call(met, "ask", questions=questions, answers=3)
        assert {one["id"]: one.get("error", {}).get("code") for one in found} == {0: -32601, 1: -32601, 2: None}


async def test_c20_a_question_that_the_server_takes_back_is_not_answered() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def think(method: str, params: Any) -> dict[str, Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    async with connect(odd(), answerer=think) as met:
        questions = [{"id": 1, "method": "roots/list"}, {"id": 2, "method": "ping"}]
        calling = asyncio.create_task(call(met, "ask", questions=questions, answers=1))
        await within_limit(begun.wait())
        assert [one["id"] for one in await within_limit(calling)] == [2]
        met.client.on_message(Notification("notifications/cancelled", Raw(b'{"requestId":1}')), None)
        await within_limit(ended.wait())


# ---- C21: noise on stdout

NOISE = {
    "banner": b"Server v1.0 listening on stdio\n\n\n",
    "colours": b"\x1b[32mINFO\x1b[0m started\r\n",
    "empty lines": b"\n\r\n   \n\t\n",
    "no JSON-RPC": b'{"level":"info"}\n[]\n[1,2]\n"text"\n42\nnull\n{"jsonrpc":"1.0","method":"x"}\n',
    "half JSON": b'{"jsonrpc":"2.0","id":1,"result":\n',
    "bad UTF-8": b'{"jsonrpc":"2.0","method":"x","params":{"a":"\xff\xfe"}}\n\xff\xfe\xfd\n',
    "NUL": b"\0\0\0\n",
    "deep": b'{"jsonrpc":"2.0","method":"x","params":' + b"[" * 100_000 + b"\n",
    "bad ids": b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}\n'
    b'{"jsonrpc":"2.0","id":{},"result":{}}\n{"jsonrpc":"2.0","id":true,"method":"ping"}\n',
    "both": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}\n',
    "surrogates": b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"\\ud800"}}\n',
    "odd progress": b'{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}\n'
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[]}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}\n',
}


DRESSES = {
    "CRLF": b"%b\r\n",
    "BOM": b"\xef\xbb\xbf%b\n",
    "blanks": b"  %b  \n",
    "batch": b"[%b]\n",
    "empty lines": b"\n\n%b\n\n",
    "line ends of other kinds inside": b'%b\n{"jsonrpc":"2.0","method":"x","params":{"a":"\xe2\x80\xa8"}}\n',
}


@requirement("wire.client.survives")
async def test_c21_noise_on_stdout_is_skipped() -> None:
    async with connect(odd(), known="handshake") as met:
        for number, data in enumerate(NOISE.values()):
            assert await noise(met, data + said(b"%d" % number) + b"\n") == "after the noise"
            assert await met.heard.wait_for("notifications/seen", number + 1) == {"n": number}


@requirement("wire.client.survives")
async def test_c21_a_message_in_unusual_dress_is_understood() -> None:
    async with connect(odd(), known="handshake") as met:
        for number, line in enumerate(DRESSES.values()):
            await noise(met, line % said(b"%d" % number))
            assert await met.heard.wait_for("notifications/seen", number + 1) == {"n": number}


@requirement("wire.client.survives")
async def test_c21_noise_is_told_in_the_diagnosis_in_measure() -> None:
    channel = odd("--banner", "Welcome to the server! " + "x" * 10_000)
    async with connect(channel) as met:
        assert "Welcome to the server!" in channel.diagnosis()
        await noise(met, b"".join(b"line %d\n" % n for n in range(1000)))
        assert "line 999" in channel.diagnosis()
        assert len(channel.diagnosis()) < 2000


@requirement("wire.client.survives")
async def test_c21_an_answer_in_pieces_is_put_together() -> None:
    async with connect(odd(), known="handshake") as met:
        calling = asyncio.create_task(met.client.call_tool("pieces", {"at": [1, 20, 40, 174]}))
        await met.heard.wait_for("notifications/begun")
        for _ in range(5):
            await met.client.notify("notifications/piece", {})
        assert read(await within_limit(calling))["padding"] == "x" * 100


@requirement("wire.client.survives")
async def test_c21_a_line_beyond_all_measure_ends_that_server_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.protocol.framing._LONGEST_LINE", 2**20)
    async with connect(odd(), known="handshake") as met, connect(odd(), known="handshake") as other:
        with pytest.raises(RookeryError, match="longer than 1048576 bytes"):
            await noise(met, b"x" * 8 * 2**20)
        with pytest.raises(RookeryError, match="longer than 1048576 bytes"):
            await call(met, "echo")
        assert await call(other, "echo", a=1) == {"a": 1}


# ---- C22: a flood on stderr


@requirement("wire.client.survives")
async def test_c22_a_flood_on_stderr_delays_no_call_and_takes_no_memory() -> None:
    channel = odd()
    async with connect(channel, known="handshake") as met:
        before = psutil.Process().memory_info().rss
        await call(met, "flood", bytes=200_000_000)
        for number in range(50):
            assert await call(met, "echo", n=number) == {"n": number}
        await met.heard.wait_for("notifications/flooded")
        assert channel.errors.dropped > 150_000_000
        assert psutil.Process().memory_info().rss - before < 50_000_000
        assert len(channel.diagnosis()) < 2000


# ---- framing


@requirement("wire.client.framing")
async def test_a_server_with_content_length_frames_is_spoken_to_in_them() -> None:
    async with connect(odd("--framing", "content-length", framing="content-length")) as met:
        assert len(await within_limit(met.client.list_all("tools/list", "tools"))) == 3
        big = "ü😀" * 100_000
        assert await call(met, "echo", big=big) == {"big": big}


@requirement("wire.client.framing")
async def test_without_the_option_the_error_names_it() -> None:
    frame = b'Content-Length: 38\r\n\r\n{"jsonrpc":"2.0","id":1,"result":{}}  '
    async with connect(odd(), known="handshake") as met:
        with pytest.raises(RookeryError, match='Content-Length frames; set framing = "content-length"'):
            await noise(met, frame)


@requirement("wire.client.framing")
async def test_a_server_that_answers_in_lines_with_the_option_on_is_named_too() -> None:
    with pytest.raises(RookeryError, match='the server sends lines; remove framing = "content-length"'):
        async with connect(odd("--banner", '{"jsonrpc":"2.0","method":"x"}', framing="content-length")):
            pass


BETWEEN_FRAMES = [
    b"a banner\n",
    b"a banner\r\n",
    b"X-Other: 1\r\n",
    b"Content-Length: many\r\n\r\n",
    b"Content-Length: -5\r\n\r\n",
    b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"Content-Length: 4\r\n\r\nnull",
    b"Content-Length: 0\r\n\r\n",
]


@requirement("wire.client.framing", "wire.client.survives")
async def test_noise_between_frames_is_skipped() -> None:
    channel = odd("--framing", "content-length", framing="content-length")
    async with connect(channel, known="handshake") as met:
        for number, odds in enumerate(BETWEEN_FRAMES):
            message = said(b"%d" % number)
            await noise(met, odds + b"content-length:%d\r\nX-More: 1\r\n\r\n%b" % (len(message), message))
            assert await met.heard.wait_for("notifications/seen", number + 1) == {"n": number}


async def test_endless_noise_where_a_frame_should_be_ends_that_server() -> None:
    channel = odd("--framing", "content-length", framing="content-length")
    async with connect(channel, known="handshake") as met:
        with pytest.raises(RookeryError, match="no Content-Length frame"):
            await noise(met, b"x" * 2**20)


# ---- writing


async def test_what_is_said_in_one_turn_of_the_loop_while_others_wait_is_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = odd()
    async with connect(channel, known="handshake") as met:
        await call(met, "echo")
        assert channel._child is not None and channel._child.stdin is not None
        write, written = channel._child.stdin.write, list[bytes]()

        def kept(data: bytes) -> None:
            written.append(data)
            write(data)

        monkeypatch.setattr(channel._child.stdin, "write", kept)
        calls = await asyncio.gather(*(call(met, "echo", n=number) for number in range(16)))
        assert calls == [{"n": number} for number in range(16)]
        # Whoever comes first writes at once: nobody can know whether others will follow.
        assert [data.count(b"\n") for data in written] == [1, 15]


@requirement("wire.client.survives")
async def test_a_server_that_closes_its_input_and_lives_on_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.client.stdio._DRAIN_SECONDS", 0.1)
    async with connect(odd(), known="handshake") as met:
        assert await call(met, "aloof") == "I do not listen any more"
        gone = asyncio.Event()
        met.client.on_lost = lambda reason: gone.set()
        with pytest.raises(RookeryError, match="closed its input"):
            await call(met, "echo")
        await within_limit(gone.wait())
        assert met.client.close_reason == "it closed its input"


# ---- D21: a server that does not read


@requirement("wire.client.survives")
async def test_d21_a_server_that_stops_reading_is_given_up_and_delays_no_other() -> None:
    async with connect(odd(write_seconds=1.0), known="handshake") as met, connect(odd(), known="handshake") as other:
        pid = await call(met, "pid")
        os.kill(pid, signal.SIGSTOP)
        try:
            calls = [asyncio.create_task(met.client.call_tool("echo", {"big": "x" * 10_000_000})) for _ in range(3)]
            for number in range(20):
                assert await call(other, "echo", n=number) == {"n": number}
            for one in calls:
                with pytest.raises(RookeryError, match="has not read its input for 1 s"):
                    await within_limit(one)
        finally:
            os.kill(pid, signal.SIGCONT)


@requirement("wire.client.timeouts")
async def test_d21_calls_that_time_out_at_a_server_that_does_not_read_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.wire.client.client._CANCEL_SECONDS", 0.1)
    limits = Timeouts(startup=LIMIT, catalog=LIMIT, execution=0.1)
    channel = odd()
    async with connect(channel, known="handshake", timeouts=limits) as met:
        # A call would have to be answered within the time that is to run out below.
        assert channel._child is not None and channel._child.stdin is not None
        pid = channel._child.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            write, written = channel._child.stdin.write, list[int]()

            def counted(data: bytes) -> None:
                written.append(len(data))
                write(data)

            monkeypatch.setattr(channel._child.stdin, "write", counted)
            for _ in range(3):
                with pytest.raises(RookeryError, match="execution timeout"):
                    await within_limit(met.client.call_tool("echo", {"big": "x" * 3_000_000}))
            assert len(written) == 1
        finally:
            os.kill(pid, signal.SIGCONT)
