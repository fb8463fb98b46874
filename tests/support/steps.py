"""The fault points that the source names, so that none is left out by a test that means to try all of them."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rookery" / "workspaces"


def steps(*kinds: str) -> list[str]:
    """Those of these kinds, such as `delete`, in no particular order."""
    found = {
        str(ast.literal_eval(node.args[0]))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fault_point"
    }
    return sorted(name for name in found if name.partition(".")[0] in kinds)
