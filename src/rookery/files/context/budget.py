"""Filling a budget of tokens with sections, by priority; every section gets a receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.files.context.rendering import ANY_MARK, Receipt, closing, opening, shown
from rookery.files.context.section import Section, beginning, estimate

# Less than this of a section is not worth its heading.
_SMALLEST = 60
# For the figures in the line that says how much was cut.
_SLACK = 8


@dataclass(frozen=True)
class Filled:
    """`placed` has each section that is there with as much of its text as has room."""

    placed: list[tuple[Section, str]]
    receipts: list[Receipt]


def fill(
    sections: Sequence[Section], budget: int, known: Mapping[str, str] | None = None, others: Sequence[Receipt] = ()
) -> Filled:
    """What is `known` by its digest already is not repeated; `others` are receipts that need room too."""
    ranked = sorted(sections, key=lambda section: section.priority)
    # Room for the worst that can be told of each, given back to those that are there whole.
    told = [estimate(_receipt(section, "cut", "cut to fit the budget").line() + "\n") for section in ranked]
    frame = estimate(opening(ANY_MARK)) + estimate(closing(others, "c-" + "0" * 12)) + estimate(closing((), "")) * 2
    left = budget - frame - sum(told)
    filled = Filled([], [])
    for section, reserved in zip(ranked, told, strict=True):
        if (known or {}).get(section.key) == section.digest:
            filled.receipts.append(Receipt(section.key, "unchanged"))
            continue
        whole = estimate(shown(section, section.text, ANY_MARK))
        if whole <= left + reserved:
            left -= whole - reserved
            filled.placed.append((section, section.text))
            filled.receipts.append(_receipt(section, "whole", ""))
            continue
        # An empty text is all heading, and the line that says that it was cut.
        room = left - estimate(shown(section, "", ANY_MARK)) - _SLACK
        part = beginning(section.text, room)
        if estimate(part) >= _SMALLEST:
            left -= estimate(shown(section, part, ANY_MARK))
            filled.placed.append((section, part))
            filled.receipts.append(_receipt(section, "cut", "cut to fit the budget"))
        else:
            filled.receipts.append(_receipt(section, "dropped", "no room in the budget"))
    filled.receipts.extend(others)
    return filled


def _receipt(section: Section, status: str, reason: str) -> Receipt:
    tokens = estimate(section.text)
    match status:
        case "whole":
            return Receipt(section.key, "whole", section.priority, tokens)
        case "cut":
            return Receipt(section.key, "cut", section.priority, tokens, reason, section.uri)
        case _:
            return Receipt(section.key, "dropped", section.priority, tokens, reason, section.uri)
