"""Rules of the house that no linter knows."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.requirements import FINISHED, cited, rows

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rookery"

# What each package may import; DESIGN: data flows one way, and the daemon wires all of it.
MAY_IMPORT = {
    "system": set[str](),
    "wire": {"system"},
    "gateway": {"system", "wire"},
    "upstreams": {"system", "wire", "gateway"},
    "clients": {"system", "upstreams"},
    "guard": {"system", "wire", "gateway"},
    "workspaces": {"system"},
    "files": {"system"},
    "agents": {"system", "wire", "workspaces"},
    "sessions": {"system", "workspaces", "agents"},
    "plugins": {"system", "workspaces", "agents", "sessions"},
    "toolsets": {"system", "wire", "gateway", "workspaces", "files", "agents", "sessions", "plugins"},
    "api": {"system", "wire", "gateway", "upstreams", "guard", "workspaces", "agents", "sessions", "plugins"},
    "cli": {"system"},
    "face": {"system", "wire", "cli", "sessions"},
    "demo": {"system", "agents", "sessions", "cli", "face", "testing"},
    "testing": {"system", "wire", "agents", "sessions"},
}
WIRES_ALL = {"daemon"}

# Files that may be longer than LENGTH, and how long; a number here only ever gets smaller.
LENGTH = 200
LONGEST = 500
LONGER = {
    "src/rookery/wire/front.py": 407,
    "src/rookery/system/store.py": 318,
}


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0]
        yield path, package, ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[str]:
    """The packages of ours that a module imports, also inside functions."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if node.module == "rookery")]
        for name in names:
            parts = name.split(".")
            if parts[0] == "rookery" and len(parts) > 1 and (SOURCE / parts[1]).is_dir():
                yield parts[1]


def test_imports_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports rookery.{other}"
        for path, package, tree in modules()
        if package not in WIRES_ALL and not package.endswith(".py")
        for other in imports(tree)
        if other != package and other not in MAY_IMPORT[package]
    ]
    assert not wrong


def test_the_table_of_imports_has_no_circle_and_knows_every_package() -> None:
    import graphlib

    tuple(graphlib.TopologicalSorter(MAY_IMPORT).static_order())
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages <= set(MAY_IMPORT) | WIRES_ALL


def test_no_file_grows_too_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("src", "tests", "bench", "docs")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert not {name: length for name, length in lengths.items() if length > LONGEST}
    grown = {name: length for name, length in lengths.items() if name.startswith("src") and length > LENGTH}
    assert not {name: length for name, length in grown.items() if length > LONGER.get(name, LENGTH)}
    assert set(LONGER) <= set(grown), "a file that became short enough leaves the table"


def test_every_source_file_has_a_docstring_that_says_what_it_is_for() -> None:
    assert not [str(path) for path, _, tree in modules() if not ast.get_docstring(tree)]


def test_tests_mirror_the_source() -> None:
    """A test file of a package is named after a module there, or its name says which behaviour it is about."""
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert folders <= packages | {"e2e", "conformance"}


def test_every_row_of_a_finished_milestone_is_cited() -> None:
    wanted = {id_ for id_, row in rows().items() if row["milestone"] in FINISHED}
    assert wanted
    assert not wanted - set(cited())


def test_every_cited_row_exists() -> None:
    assert not set(cited()) - set(rows())


def test_no_test_is_without_an_assertion() -> None:
    empty = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if not any(isinstance(part, ast.Assert) for part in ast.walk(node)) and "raises" not in ast.unparse(node)
    ]
    assert not empty


def test_the_lock_file_names_every_dependency_with_hashes_and_no_registry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for dependency in wanted:
        name = re.split(r"[;\[<>=]", dependency)[0].strip()
        assert f"\n{name}==" in f"\n{lock}"
    assert "--hash=sha256:" in lock
    assert "://" not in lock


@pytest.mark.parametrize("name", ["README.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_the_repository_has_its_furniture(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()
