"""The just tasks of a workspace, a line each."""

from pathlib import Path

from rookery.files.context.section import Section
from rookery.files.just import Just, find_justfile
from rookery.files.just_arguments import usage

_MOST = 100


async def task_sections(just: Just, root: Path) -> list[Section]:
    """Nothing if there is no justfile."""
    if find_justfile(root) is None:
        return []
    recipes = list((await just.listed(root)).recipes.values())
    lines = [f"{usage(recipe)}{f'  # {recipe.doc}' if recipe.doc else ''}" for recipe in recipes]
    beyond = [f"[{len(lines) - _MOST} more]"] if len(lines) > _MOST else []
    text = "\n".join([*lines[:_MOST], *beyond])
    return [Section("tasks", "Just tasks, for run_just_task", 3, f"{text}\n")] if lines else []
