"""Server-sent events in every form, cut at every byte."""

import pytest
from hypothesis import given, settings, strategies as st

from rookery.wire.http_client.sse import ServerSentEvent, SseParser

MESSAGES = (
    b": a comment\nevent: greeting\nid: 1\ndata: one\n\n"
    b"data\ndata: two\ndata:three\ndata:  four\n\n"
    b"retry: 250\nunknown: x\n\nid: 3\nid: with\0nul\n\ndata: \xc3\xbc\n\n"
)
EXPECTED = [
    ServerSentEvent("greeting", b"one", "1"),
    ServerSentEvent("message", b"\ntwo\nthree\n four", "1"),
    ServerSentEvent("message", "ü".encode(), "3"),
]


def fed(*pieces: bytes) -> tuple[list[ServerSentEvent], SseParser]:
    parser = SseParser()
    return [made for piece in pieces for made in parser.feed(piece)], parser


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_events_are_the_same_with_every_line_end_wherever_they_are_cut(end: bytes, start: bytes) -> None:
    data = start + MESSAGES.replace(b"\n", end)
    for cut in range(len(data) + 1):
        events, parser = fed(data[:cut], data[cut:])
        assert (events, parser.retry, parser.last_id) == (EXPECTED, 0.25, "3")
    assert fed(*[bytes([byte]) for byte in data])[0] == EXPECTED


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_an_event_is_told_as_soon_as_its_last_byte_is_there(end: bytes) -> None:
    parser = SseParser()
    assert parser.feed(b"data: now" + end + end) == [ServerSentEvent("message", b"now", None)]


_lines = st.sampled_from(
    [
        b"",
        b"",
        b"data: a",
        b"data:b",
        b"data",
        b":comment",
        b"event: e",
        b"id: 7",
        b"id",
        b"retry: 5",
        b"retry: x",
        b"\xff",
    ]
)


@given(st.data(), st.lists(st.tuples(_lines, st.sampled_from([b"\n", b"\r", b"\r\n"]))))
@settings(deadline=None)
def test_any_pieces_give_the_same_events(data: st.DataObject, lines: list[tuple[bytes, bytes]]) -> None:
    whole = b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    first, one = fed(whole)
    second, other = fed(*pieces)
    assert (second, other.last_id, other.retry) == (first, one.last_id, one.retry)


@given(st.lists(st.binary(max_size=40)))
@settings(deadline=None)
def test_no_bytes_at_all_break_it(pieces: list[bytes]) -> None:
    assert fed(*pieces)[0] == fed(b"".join(pieces))[0]


def test_the_id_of_an_event_that_broke_off_does_not_count() -> None:
    parser = SseParser()
    parser.feed(b"id: 1\ndata: whole\n\nid: 2\ndata: ha")
    assert parser.last_id == "1"
    parser.restart()
    assert parser.feed(b"data: again\n\n") == [ServerSentEvent("message", b"again", "1")]


def test_an_event_with_an_id_and_no_data_moves_the_place_in_the_stream() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 9\n\n") == []
    assert parser.last_id == "9"
    parser.feed(b"id:\n\n")
    assert parser.last_id is None


@pytest.mark.parametrize("value", [b"9" * 400, b"9" * 5000, b"-1", b"1.5", b"", b"\xd9\xa1"])
def test_a_pause_that_makes_no_sense_is_ignored(value: bytes) -> None:
    events, parser = fed(b"retry: 10\nretry: " + value + b"\ndata: x\n\n")
    assert (len(events), parser.retry) == (1, 0.01)


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 94 + b"\n"], ids=["one line", "many lines"])
def test_an_event_beyond_all_measure_is_an_error(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.http_client.sse._LONGEST_EVENT", 10_000)
    parser = SseParser()
    with pytest.raises(ValueError, match="longer than 10000 bytes"):
        for _ in range(200):
            parser.feed(piece)


def test_many_events_of_measure_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.http_client.sse._LONGEST_EVENT", 10_000)
    assert len(fed(*[b"data: " + b"x" * 94 + b"\n\n"] * 500)[0]) == 500
