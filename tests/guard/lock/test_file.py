"""The text of mcp.lock: the same for the same servers, and merged by git."""

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as some

from rookery.guard.lock.file import FactKey, LockedPackage, LockedServer, find_line, format_lock, parse_lock
from rookery.guard.pins.definition import DefinitionKey
from rookery.system.errors import RookeryError

DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32


def server(name: str, **tools: str) -> LockedServer:
    return LockedServer(
        name,
        "project",
        {
            FactKey("command"): ["npx", "-y", f"@x/{name}@1.2.3"],
            FactKey("env", "TOKEN"): "{env:TOKEN}",
            FactKey("option", "timeout"): 5000,
        },
        [LockedPackage("npm", f"@x/{name}", "1.2.3", ("sha512-0aA/+b==",))],
        {DefinitionKey("instructions", ""): DIGEST, **{DefinitionKey("tool", key): tools[key] for key in tools}},
    )


def by_name(*servers: LockedServer) -> dict[str, LockedServer]:
    return {one.name: one for one in servers}


def test_each_line_is_one_fact_and_names_its_server() -> None:
    assert format_lock([server("github", create_issue=DIGEST)]).splitlines()[3:] == [
        "",
        "github level project",
        'github command ["npx", "-y", "@x/github@1.2.3"]',
        'github env TOKEN "{env:TOKEN}"',
        "github option timeout 5000",
        "github package npm:@x/github 1.2.3",
        "github integrity npm:@x/github@1.2.3 sha512-0aA/+b==",
        f"github instructions {DIGEST}",
        f"github tool create_issue {DIGEST}",
        "",
        "# end",
    ]


def test_the_order_of_servers_and_definitions_does_not_change_the_text() -> None:
    tools = {f"tool_{number}": DIGEST for number in range(20)}
    servers = [server(name, **tools) for name in ("b", "a", "c")]
    shuffled = [server(one.name, **dict(random.sample(list(tools.items()), len(tools)))) for one in reversed(servers)]
    assert format_lock(servers) == format_lock(shuffled)
    assert parse_lock(format_lock(servers)) == by_name(*servers)


TEXT = some.text(min_size=1, max_size=12)


@given(
    name=TEXT,
    facts=some.dictionaries(TEXT, some.one_of(TEXT, some.integers(), some.lists(TEXT)), max_size=4),
    tools=some.dictionaries(TEXT, some.sampled_from([DIGEST, OTHER]), max_size=4),
)
def test_any_name_and_any_value_are_read_as_they_were_written(
    name: str, facts: dict[str, object], tools: dict[str, str]
) -> None:
    locked = LockedServer(
        name,
        "user",
        {FactKey("option", key): value for key, value in facts.items()},
        (),
        {DefinitionKey("prompt", key): digest for key, digest in tools.items()},
    )
    text = format_lock([locked])
    read = parse_lock(text)[name]
    assert (dict(read.facts), dict(read.pins), read.level) == (dict(locked.facts), dict(locked.pins), "user")
    assert text.isascii() and text.replace("\n", "").isprintable()
    assert format_lock([read]) == text


def test_c03_invisible_characters_in_names_are_visible_in_the_file() -> None:
    text = format_lock([server("x\u202ey", **{"read\u200bme": DIGEST})])
    assert '"x\\u202ey" tool "read\\u200bme" sha256:' in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "mcp.lock:1: the first line is not"),
        ("# rookery mcp.lock 2\n", "mcp.lock:1: this version of Rookery does not know its format 2"),
        ("# rookery mcp.lock 1\n<<<<<<< HEAD\n", "mcp.lock:2: git left a conflict here"),
        ("# rookery mcp.lock 1\n=======\n", "mcp.lock:2: git left a conflict here"),
        ("# rookery mcp.lock 1\na tool x sha256:ab\n", "mcp.lock:2: the value is not sha256:"),
        ("# rookery mcp.lock 1\na thing x y\n", "'thing' is no kind of line"),
        ("# rookery mcp.lock 1\na command [1,\n", "the value is no JSON"),
        ('# rookery mcp.lock 1\n"a tool\n', "its quotes do not end"),
        ("# rookery mcp.lock 1\na tool\n", "a word is missing"),
        ("# rookery mcp.lock 1\na level owner\n", "neither project nor user"),
        ("# rookery mcp.lock 1\na package cargo:x 1\n", "neither of npm: nor of pypi:"),
        (f"# rookery mcp.lock 1\na tool x {DIGEST}\na tool x {OTHER}\n", "mcp.lock:3: it contradicts another line"),
        ("# rookery mcp.lock 1\na package npm:x 1\na package npm:x 2\n", "contradicts another line on a package npm:x"),
    ],
)
def test_a_file_that_cannot_be_believed_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(RookeryError) as caught:
        parse_lock(text)
    assert caught.value.code == "invalid-lock"
    assert reason in caught.value.message


def test_lines_in_any_order_and_twice_are_one_fact() -> None:
    text = format_lock([server("a", x=DIGEST), server("b", y=OTHER)])
    title, *lines = text.splitlines()
    mixed = "\r\n".join([title, *random.sample([*lines, *lines], 2 * len(lines))])
    assert parse_lock(mixed) == parse_lock(text)


def test_the_line_of_a_subject_is_found() -> None:
    text = format_lock([server("a"), server("b", x=DIGEST)])
    lines = text.splitlines()
    assert lines[find_line(text, "b", "tool x") - 1] == f"b tool x {DIGEST}"
    assert lines[find_line(text, "b", "npm:@x/b") - 1] == "b package npm:@x/b 1.2.3"
    assert lines[find_line(text, "b", "tool new") - 1] == "b level project"
    assert find_line(text, "c", "server") == 1


class Repository:
    """A repository with a lock file, and branches that change it."""

    def __init__(self, folder: Path, *servers: LockedServer, union: bool = False) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")
        (folder / "README").write_text("x\n")
        if union:
            (folder / ".gitattributes").write_text("mcp.lock merge=union\n")
        self.commit("main", *servers)

    def git(self, *words: str, check: bool = True) -> int:
        who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder), *who, *words]
        return subprocess.run(command, check=check, capture_output=True, timeout=60).returncode

    def commit(self, branch: str, *servers: LockedServer) -> None:
        if branch != "main":
            self.git("checkout", "-q", "-b", branch, "main")
        if servers:
            (self.folder / "mcp.lock").write_text(format_lock(servers))
        self.git("add", "-A")
        self.git("commit", "-q", "-m", branch)

    def merge(self, *branches: str) -> str | None:
        """Merge branches one after the other, and return the text; None if git leaves a conflict."""
        for branch in branches[1:]:
            self.git("checkout", "-q", branches[0])
            if self.git("merge", "-q", "--no-edit", branch, check=False):
                return None
        return (self.folder / "mcp.lock").read_text()


def test_git_merges_changes_of_different_servers_without_a_conflict(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "app", server("a", last=DIGEST), server("b", x=DIGEST), server("c", x=DIGEST))
    repository.commit("one", server("a", last=OTHER), server("b", x=DIGEST), server("c", x=DIGEST))
    repository.commit("two", server("a", last=DIGEST), server("b", x=OTHER, y=DIGEST), server("c", x=DIGEST))
    repository.commit("three", server("a", last=DIGEST), server("b", x=DIGEST))
    text = repository.merge("one", "two", "three")
    assert text == format_lock([server("a", last=OTHER), server("b", x=OTHER, y=DIGEST)])


@pytest.mark.parametrize("exists", [True, False], ids=["the-file-exists", "both-add-the-file"])
def test_servers_added_at_the_same_place_are_merged_with_the_union_driver(tmp_path: Path, exists: bool) -> None:
    first = [server("a", x=DIGEST), server("z", x=DIGEST)] if exists else []
    repository = Repository(tmp_path / "app", *first, union=True)
    repository.commit("one", *first, server("m", same=DIGEST))
    repository.commit("two", *first, server("n", same=DIGEST, other=OTHER))
    text = repository.merge("one", "two")
    assert text is not None
    wanted = [*first, server("m", same=DIGEST), server("n", same=DIGEST, other=OTHER)]
    assert parse_lock(text) == by_name(*sorted(wanted, key=lambda one: one.name))
    # Writing it again puts the lines into their order.
    assert format_lock(parse_lock(text).values()) == format_lock(wanted)


def test_two_versions_of_one_tool_are_never_merged_silently(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "app", server("a", x=DIGEST), union=True)
    repository.commit("one", server("a", x=OTHER))
    repository.commit("two", server("a", x="sha256:" + "ef" * 32))
    text = repository.merge("one", "two")
    assert text is not None
    with pytest.raises(RookeryError, match="contradicts another line on a tool x"):
        parse_lock(text)
