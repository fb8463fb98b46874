"""Fixtures for tests of files: a tree of traps, and both implementations of path resolution."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.files.sandbox import SandboxRoot
from rookery.system.fs import beneath
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner
from tests.support.sandbox import Tree, make_tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


@pytest.fixture(params=["openat2", "walk"])
def by_kernel(request: pytest.FixtureRequest) -> bool:
    if request.param == "openat2" and not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    return request.param == "openat2"


@pytest.fixture
def root(tree: Tree, by_kernel: bool) -> Iterator[SandboxRoot]:
    with SandboxRoot(tree.root, use_openat2=by_kernel) as made:
        yield made


@pytest.fixture
def git() -> Git:
    return Git(Spawner(uuid.uuid4().hex))
