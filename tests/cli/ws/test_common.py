"""Which workspace a name selects."""

from typing import Any

import pytest

from rookery.cli.ws.common import find_enclosing, find_workspace
from rookery.daemon_client.failure import Failure
from tests.support.requirements import requirement

pytestmark = requirement("ws.cli.verbs")


def record(project: str, name: str, path: str, *, main: bool = False) -> dict[str, Any]:
    return {"project": project, "name": name, "path": path, "main": main}


APP = [
    record("app-1", "@main", "/src/app", main=True),
    record("app-1", "fix", "/state/app-1/fix"),
    record("app-1", "feature/x", "/state/app-1/feature%x"),
    record("app-1", "lib/fix", "/state/app-1/lib%fix"),
]
LIB = [
    record("lib-2", "@main", "/src/lib", main=True),
    record("lib-2", "fix", "/state/lib-2/fix"),
    record("lib-2", "only", "/state/lib-2/only"),
    record("lib-2", "nested", "/src/lib/nested"),
]
ALL = [*APP, *LIB]


@pytest.mark.parametrize(
    ("name", "folder", "path"),
    [
        ("fix", "/src/app/deep", "/state/app-1/fix"),
        ("fix", "/state/lib-2/only", "/state/lib-2/fix"),
        ("@main", "/state/lib-2/only", "/src/lib"),
        ("only", "/src/app", "/state/lib-2/only"),
        ("feature/x", "/src/lib", "/state/app-1/feature%x"),
        # In its own project a name with a slash is a name; elsewhere it may say the project.
        ("lib/fix", "/src/app", "/state/app-1/lib%fix"),
        ("lib/fix", "/src/lib", None),
        ("lib-2/fix", "/src/app", "/state/lib-2/fix"),
        ("app/feature/x", None, "/state/app-1/feature%x"),
        ("app/@main", "/src/lib", "/src/app"),
        ("fix", "/elsewhere", None),
        ("fix", None, None),
        ("only", None, "/state/lib-2/only"),
    ],
)
def test_a_name_is_looked_for_near_first_and_must_be_clear(name: str, folder: str | None, path: str | None) -> None:
    if path is None:
        with pytest.raises(Failure, match="matches several workspaces") as caught:
            find_workspace(ALL, name, folder)
        assert caught.value.exit_code == 2
        assert "app-1/" in caught.value.remedy and "lib-2/fix" in caught.value.remedy
    else:
        assert find_workspace(ALL, name, folder)["path"] == path


def test_what_is_not_there_is_not_found_and_what_is_like_it_is_named() -> None:
    with pytest.raises(Failure, match="there is no workspace featrue/x") as caught:
        find_workspace(ALL, "featrue/x", "/src/app")
    assert (caught.value.exit_code, caught.value.remedy) == (3, "did you mean feature/x?")
    with pytest.raises(Failure) as caught:
        find_workspace([], "fix", None)
    assert "rookery ws list" in caught.value.remedy


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("/src/lib", "/src/lib"),
        ("/src/lib/deep/er", "/src/lib"),
        ("/src/lib/nested/deep", "/src/lib/nested"),
        ("/src/library", None),
        ("/", None),
    ],
)
def test_a_folder_lies_in_the_innermost_workspace(folder: str, path: str | None) -> None:
    found = find_enclosing(ALL, folder)
    assert (found and found["path"]) == path
