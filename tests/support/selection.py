"""Find the tests that need OpenCode, which `make test-fast` leaves out."""

import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
_OPENCODE = TESTS / "support" / "opencode" / "process.py"
_FIXTURE = "shared_opencode"
_IMPORT = re.compile(r"^\s*(?:from|import) +(tests(?:\.\w+)+)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE)


@functools.cache
def needs_opencode(path: Path) -> bool:
    """Return whether a test module imports what starts OpenCode, itself or through other modules of `tests`."""
    if _FIXTURE in path.read_text():
        return True
    seen, pending = set[Path](), [path]
    while pending:
        module = pending.pop()
        if module == _OPENCODE:
            return True
        if module not in seen:
            seen.add(module)
            pending.extend(_find_imports(module))
    return False


@functools.cache
def _find_imports(path: Path) -> tuple[Path, ...]:
    """Return the modules of `tests` that a module imports."""
    names = set[str]()
    for module, members in _IMPORT.findall(path.read_text()):
        names.add(module)
        names.update(f"{module}.{member}" for member in re.findall(r"\w+", members))
    paths = (TESTS.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names)
    return tuple(path for path in paths if path.is_file())
