"""The marker with which a test cites the row of requirements.toml that it proves."""

import ast
import tomllib
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "requirements.toml"

# Milestones whose every row must be cited by a test.
FINISHED = (
    "house",
    "wire",
    "gateway",
    "workspaces",
    "agents",
    "worktree-server",
    "sessions",
    "stage",
    "hub",
    "mend",
    "operations",
    "servers",
    "guard",
    "sandbox",
)


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Cite rows. A row that does not exist is an error when the test is collected."""
    unknown = [row for row in ids if row not in rows()]
    if unknown:
        raise LookupError(f"no such requirement: {', '.join(unknown)}")
    return pytest.mark.requirement(*ids)


_rows: dict[str, dict[str, str]] = {}


def rows() -> dict[str, dict[str, str]]:
    if not _rows:
        listed = tomllib.loads(TABLE.read_text(encoding="utf-8"))["requirement"]
        _rows.update({row["id"]: row for row in listed})
        if len(_rows) != len(listed):
            raise ValueError("an id stands twice in requirements.toml")
    return _rows


def cited() -> dict[str, list[str]]:
    """Return the tests that cite each row, as `path::name`, or `path` if a whole file does. No test is run."""
    found: dict[str, list[str]] = {}
    for path in sorted(TABLE.parent.rglob("test_*.py")):
        place = path.relative_to(TABLE.parents[1]).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = f"{place}::{node.name}" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else place
            marks = [node.value] if isinstance(node, ast.Assign) else getattr(node, "decorator_list", [])
            for call in [part for mark in marks for part in ast.walk(mark) if isinstance(part, ast.Call)]:
                if isinstance(call.func, ast.Name) and call.func.id == "requirement":
                    for word in call.args:
                        found.setdefault(ast.literal_eval(word), []).append(name)
    return found
