"""The changes in a workspace since its start."""

import os
from pathlib import Path

import pytest

from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.status import diff
from rookery.workspaces.status.diff import ChangedFile, WorkspaceDiff, parse_changed_files
from tests.support.requirements import requirement
from tests.support.workspaces.no_agents import NoAgents
from tests.support.workspaces.service import WorkspaceParts, commit, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


async def of(served: WorkspaceParts, name: str = "fix") -> WorkspaceDiff:
    tools = WorkspaceOperations(served.workspaces, served.projects, served.git, served.events, NoAgents())
    return await tools.diff(await tools.workspaces.get("app", name))


async def workspace(served: WorkspaceParts, app: Path, name: str = "fix") -> Path:
    made = await served.workspaces.create(await served.project(app), name)
    return (await served.workspaces.wait_until_prepared(made)).path


@requirement("ws.cli.verbs")
async def test_all_that_a_branch_changed_is_told_committed_or_not(state: Path) -> None:
    app = make_repository(Path.home() / "app", {"gone": "gone\n", "old name": "a\nb\nc\nd\n", "edited": "one\n"})
    async with start_workspaces(state) as served:
        path = await workspace(served, app)
        commit(path, "committed")
        git(path, "rm", "-q", "gone")
        git(path, "mv", "old name", "neu ü")
        (path / "edited").write_text("one\ntwo\n")
        (path / "untracked").write_text("new\n")
        (path / "binary").write_bytes(b"\0\1")
        # What the base got meanwhile is none of the branch's doing.
        commit(app, "elsewhere")
        found = await of(served)
        assert found.base == "main"
        assert found.since == git(path, "merge-base", "HEAD", "main")
        assert found.cut == []
        assert {one.path: (one.status, one.added, one.deleted, one.was) for one in found.files} == {
            "committed": ("added", 1, 0, None),
            "gone": ("deleted", 0, 1, None),
            "neu ü": ("renamed", 0, 0, "old name"),
            "edited": ("modified", 1, 0, None),
            "untracked": ("untracked", None, None, None),
            "binary": ("untracked", None, None, None),
        }
        for line in ("+text", "-gone", "rename from old name", "+two", "+++ b/untracked", "+new", "Binary files"):
            assert line in found.text, line
        assert "elsewhere" not in found.text


async def test_the_patch_can_be_applied_to_where_the_branch_began(state: Path, tmp_path: Path) -> None:
    app = make_repository(Path.home() / "app", {"edited": "one\n"})
    async with start_workspaces(state) as served:
        path = await workspace(served, app)
        (path / "edited").write_text("one\ntwo\n")
        (path / "folder").mkdir()
        (path / "folder" / "-odd name").write_text("new\n")
        found = await of(served)
        patch = tmp_path / "patch"
        patch.write_text(found.text)
        git(app, "apply", str(patch))
        assert (app / "edited").read_text() == "one\ntwo\n"
        assert (app / "folder" / "-odd name").read_text() == "new\n"


async def test_what_is_too_large_is_cut_off_and_said_so(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "_MAX_PATCH_BYTES", 200)
    monkeypatch.setattr(diff, "_MAX_NEW_FILES", 2)
    monkeypatch.setattr(diff, "_MAX_FILES", 4)
    app = make_repository(Path.home() / "app")
    async with start_workspaces(state) as served:
        path = await workspace(served, app)
        for number in range(5):
            (path / f"new-{number}").write_text("line\n" * 50)
        found = await of(served)
        assert len(found.files) == 4
        assert len(found.text) <= 200
        assert found.text.endswith("\n")
        assert found.cut == ["1 of 5 files", "the patch after 200 bytes", "the text of 3 untracked files"]


@pytest.mark.parametrize("base", ["no-such-branch", "--output=x", ""])
async def test_without_a_base_only_what_is_not_committed_is_told(state: Path, base: str) -> None:
    app = make_repository(Path.home() / "app")
    async with start_workspaces(state) as served:
        path = await workspace(served, app)
        commit(path, "committed")
        (path / "new").write_text("new\n")
        one = await served.workspaces.get("app", "fix")
        await served.workspaces.set_metadata(one, "base", base)
        found = await of(served)
        assert [file.path for file in found.files] == ["new"]
        assert found.since == git(path, "rev-parse", "HEAD")
        assert not (path / "x").exists()


async def test_a_repository_without_a_commit_has_a_difference_too(state: Path) -> None:
    app = Path.home() / "app"
    app.mkdir()
    git(app, "init", "-q", "-b", "main")
    (app / "staged").write_text("staged\n")
    git(app, "add", "staged")
    async with start_workspaces(state) as served:
        await served.project(app)
        found = await of(served, "@main")
        assert found.since is None
        assert [(file.path, file.status) for file in found.files] == [("staged", "added")]


async def test_no_program_of_the_repository_has_a_word_in_it(state: Path) -> None:
    app = make_repository(Path.home() / "app", {"a.txt": "a\n", ".gitattributes": "*.txt diff=evil filter=evil\n"})
    mark = Path.home() / "ran"
    for key in ("diff.evil.command", "diff.evil.textconv", "filter.evil.clean", "diff.external"):
        git(app, "config", key, f"touch {mark}; cat")
    async with start_workspaces(state, approve=False) as served:
        path = await workspace(served, app)
        (path / "a.txt").write_text("b\n")
        (path / "new.txt").write_text("new\n")
        found = await of(served)
        assert {file.path for file in found.files} == {"a.txt", "new.txt"}
        assert "+b" in found.text
        assert not mark.exists()


async def test_names_that_are_no_text_are_told_all_the_same(state: Path) -> None:
    app = make_repository(Path.home() / "app")
    async with start_workspaces(state) as served:
        path = await workspace(served, app)
        odd = path / os.fsdecode(b"odd-\xff")
        odd.write_text("odd\n")
        (path / "line\nbreak\tand tab").write_text("x\n")
        git(path, "add", "--", "line\nbreak\tand tab")
        found = await of(served)
        assert [one.path for one in found.files] == ["line\nbreak\tand tab", "odd-\ufffd"]


def test_both_names_of_a_renamed_file_are_read() -> None:
    printed = b":100644 100644 a b R090\0old\0new\0:100644 100644 a b M\0kept\0003\t1\t\0old\0new\0-\t-\tkept\0"
    assert list(parse_changed_files(printed)) == [
        ChangedFile("new", "renamed", 3, 1, "old"),
        ChangedFile("kept", "modified", None, None, None),
    ]
