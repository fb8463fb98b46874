"""Names of workspaces, and their paths."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rookery.system.errors import RookeryError
from rookery.workspaces.model import (
    check_workspace_name,
    choose_unique_names,
    encode_folder_name,
    resolve_worktree_path,
)
from rookery.workspaces.projects import Project
from tests.support.workspaces.service import git

PROJECT = Project("app-12345678", "app", "/src/app")
STATE = Path("/state")


@pytest.mark.parametrize("name", ["x", "fix-login", "feature/a_b.c", "7", "A/b/C-1", "x" * 80, "v1.2"])
def test_good_names_are_taken(name: str) -> None:
    check_workspace_name(name)
    assert encode_folder_name(name) == name.replace("/", "%")


@pytest.mark.parametrize(
    "name",
    ["", "-x", "../x", "a/../b", "a..b", "/x", "a//b", "x/", "x.", "a/.b", "a./b", ".x", "@main", "a b", "a\\b", "ä",
     "x" * 101, "x" * 300, "x\n", "a.lock", "a.lock/b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a@{0}", "HEAD", "a%b"],
)  # fmt: skip
def test_e09_names_that_git_or_a_folder_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(RookeryError) as caught:
        check_workspace_name(name)
    assert caught.value.code == "invalid-input"
    assert caught.value.remedy


@given(st.text(alphabet="ab./-_Lock@{HEAD", min_size=1, max_size=12))
def test_e09_whatever_is_taken_git_takes_too(name: str) -> None:
    try:
        check_workspace_name(name)
    except RookeryError:
        return
    assert git(Path("/"), "check-ref-format", "--branch", name) == name


def test_a_place_is_in_the_state_folder_or_where_the_template_says(tmp_path: Path) -> None:
    assert resolve_worktree_path("", STATE, PROJECT, "a/b") == Path("/state/projects/app-12345678/workspaces/a%b")
    assert resolve_worktree_path("../trees/{project}-{name}", STATE, PROJECT, "a/b") == Path(
        "/src/app/../trees/app-a%b"
    )
    assert resolve_worktree_path("/trees/{id}/{name}", STATE, PROJECT, "x") == Path("/trees/app-12345678/x")
    assert resolve_worktree_path("~/{name}", STATE, PROJECT, "x") == Path.home() / "x"


@pytest.mark.parametrize("template", ["/trees", "/trees/{nam}", "/trees/{name}/{secret}"])
def test_a_template_that_cannot_work_is_refused(template: str) -> None:
    with pytest.raises(RookeryError, match=r"worktrees\.path"):
        resolve_worktree_path(template, STATE, PROJECT, "x")


def test_every_name_is_given_once() -> None:
    assert choose_unique_names([["a"], ["a", "b"], ["a", "b"], ["b"]], set()) == ["a", "b", "b-2", "b-3"]
