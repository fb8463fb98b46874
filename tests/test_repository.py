"""Rules of the repository that no linter checks."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
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
    "operations": {
        "system",
        "wire",
        "gateway",
        "upstreams",
        "guard",
        "workspaces",
        "files",
        "agents",
        "sessions",
        "plugins",
    },
    "toolsets": {"system", "wire", "gateway", "workspaces", "files", "agents", "sessions", "plugins", "operations"},
    "api": {
        "system",
        "wire",
        "gateway",
        "upstreams",
        "guard",
        "workspaces",
        "agents",
        "sessions",
        "plugins",
        "operations",
    },
    "daemon_client": {"system"},
    "cli": {"system", "daemon_client"},
    "sdk": {"system", "wire", "daemon_client", "sessions"},
    "demo": {"system", "agents", "sessions", "daemon_client", "cli", "sdk", "testing"},
    "testing": {"system", "wire", "agents", "sessions"},
}
WIRES_ALL = {"daemon"}

# Past this a module is several ideas; none is longer.
LONGEST = 800
# Past this a folder is no table of contents any more.
MOST_MODULES = 15
# Past this the name of a test is no sentence that is read at once.
LONGEST_TEST_NAME = 80
# Folders of tests that mirror no package, with the reason.
WITHOUT_MODULE = {
    "e2e": "the whole product, as its users see it",
    "conformance": "the official MCP conformance suite, against servers and clients of both eras",
}
# Modules that import one another, one of them inside a function, with the reason.
LAZY_CYCLES = {
    ("daemon_client.connection", "daemon_client.start"): "a call that finds no daemon starts one, and then connects",
    ("sessions.drawing.picture", "sessions.drawing.png", "sessions.drawing.svg"): "loads the format that is asked for",
}
# Names of modules that end like a participle: nouns of the field, and definitions that were saved to a file.
NAMED_LIKE_PARTICIPLES = {"framing", "paging", "rendering", "timing", "decoding", "saved"}
# Subjects of older commits are longer.
FIRST_SHORT_SUBJECT = "2026-11-18T00:00:00+0000"
LONGEST_SUBJECT = 72

# Modules that one sibling alone imports, by the reason why they are not part of it.
SINGLE_IMPORTER = {
    "a command of its own": {
        "cli.guard.audit",
        "cli.guard.scan",
        "cli.mcp.add",
        "cli.mcp.call",
        "cli.mcp.check",
        "cli.mcp.login",
    },
    "a part of starting the daemon or the demo, one step each": {
        "daemon.app",
        "daemon.composition",
        "daemon.serve",
        "demo.daemon",
        "demo.tickets",
        "demo.tour",
    },
    "loaded only when it is needed": {
        "sessions.drawing.png",
        "sessions.drawing.svg",
        "upstreams.oauth.flow",
        "upstreams.oauth.sdk",
        "upstreams.oauth.transport",
    },
    "computes and does no I/O, beside a module that does": {
        "gateway.search.index",
        "gateway.search.words",
        "guard.scan.decoding",
        "plugins.boulder.engine",
        "sessions.patterns",
        "sessions.terminal.emulator",
        "sessions.terminal.keys",
        "sessions.terminal.readiness",
        "sessions.terminal.rendering",
        "upstreams.lint",
        "wire.http.head_cache",
    },
    "one transport or one path of a protocol": {
        "upstreams.fastpath",
        "wire.client.subscriptions",
        "wire.server.sse",
        "wire.server.streamable",
    },
    "one group of checks or of definitions in a registry": {
        "daemon.doctor.agents",
        "daemon.doctor.clients",
    },
    "a collaborator with a state of its own": {
        "agents.supervisor",
        "agents.watcher",
        "api.socketio.clients",
        "daemon.services.endpoint_ports",
        "daemon.services.notify",
        "files.just.sources",
        "gateway.membership",
        "guard.audit.archive",
        "upstreams.oauth.helper",
        "workspaces.delete.check",
        "workspaces.delete.restore",
    },
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


def test_every_source_file_has_a_docstring_that_says_what_it_is_for() -> None:
    assert not [str(path) for path, _, tree in modules() if not ast.get_docstring(tree)]


def test_tests_mirror_the_source_module_by_module() -> None:
    """`tests/a/b/test_c.py` tests `a/b/c.py` or the package `a/b/c`, `test_c_topic.py` one aspect of it."""
    wrong: list[str] = []
    for path in sorted((ROOT / "tests").glob("*/**/test_*.py")):
        folder = path.parent.relative_to(ROOT / "tests")
        if folder.parts[0] in WITHOUT_MODULE:
            continue
        source = SOURCE / folder
        names = {module.stem for module in source.glob("*.py")} - {"__init__"}
        names |= {package.parent.name for package in source.glob("*/__init__.py")}
        topic = path.stem.removeprefix("test_")
        if not any(topic == name or topic.startswith(f"{name}_") for name in names):
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong


def test_folders_of_tests_without_a_module_exist_and_are_no_packages() -> None:
    for name in WITHOUT_MODULE:
        assert any((ROOT / "tests" / name).rglob("test_*.py")), name
        assert not (SOURCE / name).exists(), name


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    assert not {str(folder.relative_to(ROOT)): many for folder, many in folders.items() if many > MOST_MODULES}


def find_packed_assignments(tree: ast.Module) -> Iterator[ast.Assign]:
    """Yield assignments like `a, b = x, y`. In a swap a value reads a target, and needs to be one statement."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple):
            written = {ast.unparse(element) for element in target.elts}
            read = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, ast.expr)}
            if not written & read:
                yield node


def test_no_line_packs_several_assignments() -> None:
    packed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, _, tree in modules()
        for node in find_packed_assignments(tree)
    ]
    assert not packed


def test_a_packed_assignment_is_told_from_a_swap() -> None:
    tree = ast.parse("a, b = 1, 2\nc, d = d, c\nold, self.x = self.x, None\n(e, f), g = pair, 1")
    assert [node.lineno for node in find_packed_assignments(tree)] == [1, 4]


def test_no_public_class_name_is_used_twice_in_a_package() -> None:
    places: dict[tuple[str, str], list[str]] = {}
    for path, package, tree in modules():
        for node in outside_functions(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault((package, node.name), []).append(str(path.relative_to(SOURCE)))
    assert places
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_no_module_is_named_by_a_participle() -> None:
    names = {path.stem for path, _, _ in modules()}
    assert {name for name in names if re.search(r"[a-z]{2}(ing|ed)$", name)} == NAMED_LIKE_PARTICIPLES


def outside_functions(tree: ast.Module, *, types: bool = True) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, also those in `if`, `try` and `with`, or in a class.

    Without `types`, those for type checkers are left out.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.excepthandler)]


def imported_modules(nodes: Iterable[ast.AST], names: Container[str]) -> set[str]:
    """Return the modules and packages of ours that statements import, in any form."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, "imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if name in names}
            # What is no module is a name in the package.
            if node.module in names and not all(name in names for name in inner):
                found.add(node.module)
    return found


def find_cycles(graph: Mapping[str, set[str]]) -> set[tuple[str, ...]]:
    """Return the modules that reach one another, in groups."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        waiting = [start]
        reached[start] = set()
        while waiting:
            new = graph[waiting.pop()] - reached[start]
            reached[start] |= new
            waiting += new
    groups = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in graph if a in reached[a]}
    return {tuple(name.removeprefix("rookery.") for name in group) for group in groups}


def test_modules_do_not_import_one_another_in_a_circle() -> None:
    """A circle that an import inside a function closes has a reason. Imports for type checkers do not count."""
    names = {module_name(path): tree for path, _, tree in modules()}
    statements = {name: list(outside_functions(tree, types=False)) for name, tree in names.items()}
    graph = {name: imported_modules(nodes, names) for name, nodes in statements.items()}
    assert not find_cycles(graph)
    for name, tree in names.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                graph[name] |= imported_modules(ast.walk(node), names)
    assert find_cycles(graph) == set(LAZY_CYCLES)


def test_a_circle_of_imports_is_found() -> None:
    names = {"a", "a.b", "c"}
    tree = ast.parse("import c\ntry:\n    from a import b, other\nexcept ImportError:\n    pass")
    assert imported_modules(outside_functions(tree), names) == {"c", "a", "a.b"}
    assert find_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {("b", "c")}
    assert find_cycles({"a": {"a"}}) == {("a",)}


def test_a_module_that_one_sibling_alone_imports_has_a_reason() -> None:
    names = {module_name(path): (path, tree) for path, _, tree in modules()}
    importers: dict[str, set[str]] = {name: set() for name in names}
    for name, (_, tree) in names.items():
        for target in imported_modules(ast.walk(tree), names):
            importers[target].add(name)
    single = {
        name.removeprefix("rookery.")
        for name, others in importers.items()
        if names[name][0].name != "__init__.py"
        and len(others) == 1
        and next(iter(others)).rpartition(".")[0] == name.rpartition(".")[0]
    }
    listed = [name for group in SINGLE_IMPORTER.values() for name in group]
    assert single == set(listed) and len(listed) == len(set(listed))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cited_by_bars() -> set[str]:
    """Return the rows that bars of benches cite: a row that is a figure is proved there."""
    return {
        node.value
        for path in (ROOT / "bench").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in rows()
    }


def test_every_row_of_a_finished_milestone_is_cited() -> None:
    wanted = {id_ for id_, row in rows().items() if row["milestone"] in FINISHED}
    assert wanted
    assert not wanted - set(cited()) - cited_by_bars()


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


def test_no_test_name_is_longer_than_80_characters() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if len(node.name) > LONGEST_TEST_NAME
    ]
    assert not long


def test_subjects_of_commits_name_an_area_and_are_short() -> None:
    command = ["git", "log", f"--since={FIRST_SHORT_SUBJECT}", "--no-merges", "--format=%s"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("this is no git checkout")
    subjects = done.stdout.splitlines()
    assert not [subject for subject in subjects if len(subject) > LONGEST_SUBJECT]
    assert not [subject for subject in subjects if not re.match(r"[a-z0-9_, ]+: \S", subject)]


def test_the_lock_file_names_every_dependency_with_hashes_and_no_registry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for dependency in wanted:
        name = re.split(r"[;\[<>=]", dependency)[0].strip()
        assert f"\n{name}==" in f"\n{lock}"
    assert "--hash=sha256:" in lock
    assert "://" not in lock


@pytest.mark.parametrize(
    "name", ["README.md", "GLOSSARY.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md", "LICENSE"]
)
def test_the_repository_has_its_furniture(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()
