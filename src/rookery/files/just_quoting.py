"""Which variables just writes into the text that a shell reads, where their values would be read as shell."""

from collections.abc import Iterator, Sequence
from typing import Any, cast


def written(body: Sequence[Sequence[Any]], *, one_text: bool) -> Iterator[str]:
    """The variables that stand unquoted in a recipe's body; `one_text` if not each line is a shell's own."""
    before = ""
    for line in body:
        for part in line:
            if isinstance(part, str):
                before += part
            else:
                # Quotes around what is quoted would open it again.
                yield from variables(part, quotable=not _inside_quotes(before))
        before = before if one_text or before.endswith("\\") else ""


def _inside_quotes(before: str) -> bool:
    """Whether a quote is open at the end of the text. An apostrophe counts as one, to be on the safe side."""
    return before.count('"') % 2 == 1 or before.count("'") % 2 == 1


def variables(expression: Any, *, quotable: bool = True) -> Iterator[str]:
    """The variables of an expression, but for those that are quoted."""
    if not isinstance(expression, Sequence) or isinstance(expression, str):
        return
    parts = cast(Sequence[Any], expression)
    if len(parts) == 2 and parts[0] == "variable" and isinstance(parts[1], str):
        yield parts[1]
    elif not quotable or [*parts[:2]] != ["call", "quote"]:
        for part in parts:
            yield from variables(part, quotable=quotable)
