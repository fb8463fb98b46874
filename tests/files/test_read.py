"""Reading files: ranges, limits, encodings, and binary files."""

import asyncio
import os

import pytest

from rookery.files.read import DEFAULT_TEXT_BYTES, MAX_READ_BYTES, FileContent, read_content
from rookery.files.sandbox import SandboxRoot
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.sandbox import Tree, look, open_descriptors

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def lines(
    root: SandboxRoot, path: str, first: int = 1, last: int | None = None, limit: int = DEFAULT_TEXT_BYTES
) -> FileContent:
    return asyncio.run(read_content(root, path, first_line=first, last_line=last, max_bytes=limit))


@requirement("files.read.path")
def test_a_file_is_read_whole(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/b.txt", "one\nzwei ß\n".encode())
    got = look(root, "a/b.txt")
    assert got == FileContent("a/b.txt", 12, "text/plain", "utf-8", "one\nzwei ß\n", b"", 1, 2, "")


@requirement("files.read.path")
def test_an_empty_file_is_empty_text(root: SandboxRoot, tree: Tree) -> None:
    tree.write("empty", b"")
    got = look(root, "empty")
    assert (got.text, got.encoding, got.last_line, got.cut) == ("", "utf-8", 0, "")


@requirement("files.read.bounds")
def test_a_range_of_lines_is_read(root: SandboxRoot, tree: Tree) -> None:
    tree.write("x", b"1\n2\n3\n4")
    assert [(got.text, got.last_line, got.cut) for got in (lines(root, "x", 2, 3), lines(root, "x", 3))] == [
        ("2\n3\n", 3, ""),
        ("3\n4", 4, ""),
    ]
    assert lines(root, "x", 4, 9).text == "4"
    assert lines(root, "x", 9).cut == "the file ends before line 9"


@requirement("files.read.bounds")
@pytest.mark.parametrize(
    ("first", "last", "limit"), [(0, None, 1), (3, 2, 1), (1, None, 0), (1, None, MAX_READ_BYTES + 1)]
)
def test_a_range_that_makes_no_sense_is_told(
    root: SandboxRoot, tree: Tree, first: int, last: int | None, limit: int
) -> None:
    tree.write("x")
    with pytest.raises(RookeryError) as caught:
        lines(root, "x", first, last, limit)
    assert caught.value.code == "invalid-input"


@requirement("files.read.bounds")
def test_what_is_cut_is_said_and_can_be_gone_on_with(root: SandboxRoot, tree: Tree) -> None:
    whole = b"".join(b"line %d\n" % number for number in range(1, 50_001))
    tree.write("x", whole)
    first, got = 1, ""
    for _ in range(100):
        part = lines(root, "x", first, limit=50_000)
        assert len(part.text) <= 50_000
        got += part.text
        if not part.cut:
            break
        assert part.cut.endswith(f"continue with first_line {part.last_line + 1}")
        first = part.last_line + 1
    assert got.encode() == whole


@requirement("files.read.bounds")
def test_a_line_that_is_too_long_is_cut_between_characters(root: SandboxRoot, tree: Tree) -> None:
    tree.write("x", "ß".encode() * 1000)
    got = lines(root, "x", limit=101)
    assert (got.text, got.encoding) == ("ß" * 50, "utf-8")
    assert got.cut == "line 1 is longer than max_bytes; cut after 100 bytes (the file has 2000 bytes)"


@requirement("files.sandbox.special")
def test_p13_a_sparse_file_of_10_gb_is_not_read_whole(root: SandboxRoot, tree: Tree) -> None:
    os.truncate(tree.write("sparse"), 10 * 2**30)
    os.truncate(tree.write("text", b"line\n" * 100_000), 10 * 2**30)
    sparse, text = look(root, "sparse"), look(root, "text")
    assert (sparse.media_type, sparse.data) == ("application/octet-stream", b"")
    assert sparse.cut == f"the file is not text and is larger than {MAX_READ_BYTES} bytes: its content is not included"
    assert DEFAULT_TEXT_BYTES - 5 <= len(text.text) <= DEFAULT_TEXT_BYTES
    assert text.cut
    assert lines(root, "text", 2, 3).cut == ""


@requirement("files.read.bounds")
def test_a_large_text_in_wide_characters_says_how_much_of_it_was_looked_at(root: SandboxRoot, tree: Tree) -> None:
    tree.write("wide", ("line\n" * 500_000).encode("utf-16"))
    assert lines(root, "wide", 1_000_000).cut == "only the first 4194304 of 5000002 bytes were read"
    assert (lines(root, "wide", 2, 2).text, lines(root, "wide", 2, 2).cut) == ("line\n", "")


@requirement("files.sandbox.special")
def test_p31_a_file_that_grows_is_read_up_to_the_cap(root: SandboxRoot, tree: Tree) -> None:
    path = tree.write("log", b"line\n" * 10)
    with root.open_file("log") as handle:
        with path.open("ab") as more:
            more.write(b"line\n" * 100_000)
        assert handle.stat_result.st_size == 50
    got = lines(root, "log", limit=100)
    assert (len(got.text), got.last_line) == (100, 20)


@requirement("files.read.bounds")
@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"\xef\xbb\xbfabc", "utf-8-sig", "abc"),
        ("a\nß".encode("utf-16"), "utf-16", "a\nß"),
        ("a\nß".encode("utf-32"), "utf-32", "a\nß"),
        ("größe".encode("latin-1"), "iso-8859-1", "größe"),
        (b"x" * 9000 + "ü".encode("latin-1"), "iso-8859-1", "x" * 9000 + "ü"),
        ("ü".encode() * 5000, "utf-8", "ü" * 5000),
        (b"a\x1b[31mb\r\n", "utf-8", "a\x1b[31mb\r\n"),
    ],
)
def test_p14_the_encoding_is_stated(root: SandboxRoot, tree: Tree, data: bytes, encoding: str, text: str) -> None:
    tree.write("x", data)
    got = look(root, "x")
    assert (got.encoding, got.text) == (encoding, text)


@requirement("files.read.bounds")
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"\x7fELF\x02\0\0", "application/octet-stream"),
        (b"text with a \0 in it", "application/octet-stream"),
    ],
)
def test_p14_images_and_binary_files_are_told_apart(
    root: SandboxRoot, tree: Tree, data: bytes, media_type: str
) -> None:
    tree.write("x", data)
    got = look(root, "x")
    assert (got.media_type, got.encoding, got.data, got.text) == (media_type, None, data, "")


def test_b36_a_thousand_reads_at_once_within_256_descriptors(root: SandboxRoot, tree: Tree) -> None:
    import resource

    tree.write("small", b"x" * 1000)
    tree.write("large", b"line\n" * 20_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_descriptors()

    async def all_at_once() -> list[FileContent | BaseException]:
        wanted = [read_content(root, name) for name in ("small", "large") * 500]
        return await asyncio.gather(*wanted, return_exceptions=True)

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        got = asyncio.run(all_at_once())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    failed = {one.code if isinstance(one, RookeryError) else repr(one) for one in got if isinstance(one, BaseException)}
    assert failed <= {"file-unreadable"}
    assert sum(isinstance(one, FileContent) for one in got) >= 500
    assert open_descriptors() == before
    assert look(root, "large").text


def test_a_read_that_nobody_waits_for_leaves_no_descriptor(root: SandboxRoot, tree: Tree) -> None:
    tree.write("large", b"line\n" * 2_000_000)
    before = open_descriptors()

    async def given_up() -> None:
        reading = asyncio.get_running_loop().create_task(read_content(root, "large", first_line=2_000_000))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(given_up())
    assert open_descriptors() == before
