"""The marker by which a test names the row of requirements.toml that it proves."""

import tomllib
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "requirements.toml"

# Milestones whose every row must be cited by a test.
FINISHED = ("house",)


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Cite rows; a row that does not exist is an error already when the test is collected."""
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
