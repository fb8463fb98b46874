"""Filling a budget with sections, and reporting the result for each."""

import pytest
from hypothesis import given, strategies as st

from rookery.files.context.section import (
    SAMPLE_MARK,
    FilledBudget,
    Receipt,
    Section,
    cut_to_tokens,
    estimate_tokens,
    fill_budget,
    render_closing,
    render_opening,
    render_section,
)
from tests.support.requirements import requirement

LINES = "".join(f"line {number}\n" for number in range(1000))


def rendered(filled: FilledBudget) -> str:
    parts = "".join(render_section(section, part, SAMPLE_MARK) for section, part in filled.placed)
    return render_opening(SAMPLE_MARK) + parts + render_closing(filled.receipts, "c-000000000000")


def statuses(filled: FilledBudget) -> dict[str, str]:
    return {receipt.key: receipt.status for receipt in filled.receipts}


@requirement("context.budget.receipts")
def test_a_budget_is_filled_by_priority_and_what_is_left_out_is_told() -> None:
    sections = [Section("low", "Low", 3, LINES), Section("high", "High", 1, LINES), Section("mid", "Mid", 2, "short\n")]
    filled = fill_budget(sections, estimate_tokens(LINES) + 500)
    assert statuses(filled) == {"high": "whole", "mid": "whole", "low": "cut"}
    filled = fill_budget(sections, estimate_tokens(LINES) + 240)
    assert [section.key for section, _ in filled.placed] == ["high", "mid"]
    dropped = filled.receipts[-1]
    tokens = estimate_tokens(LINES)
    assert dropped == Receipt("low", "dropped", 3, tokens, "no room in the budget", "context://low")
    line = f"- low (priority 3, about {tokens} tokens): no room in the budget; full text: context://low"
    assert line in rendered(filled)


@requirement("context.budget.receipts")
def test_a_section_that_is_cut_keeps_its_first_whole_lines_and_says_so() -> None:
    section = Section("long", "Long", 1, LINES)
    filled = fill_budget([section], 1000)
    ((_, part),) = filled.placed
    assert LINES.startswith(part) and LINES[len(part)] == "\n"
    assert f"[cut: about {estimate_tokens(part)} of {estimate_tokens(LINES)} tokens are here]" in rendered(filled)
    assert filled.receipts[0].uri == "context://long"


def test_a_part_that_says_next_to_nothing_is_left_out() -> None:
    filled = fill_budget([Section("wide", "Wide", 1, "short\n" + "x" * 9999 + "\n")], 1000)
    assert not filled.placed
    assert statuses(filled) == {"wide": "dropped"}


def test_each_section_shows_its_priority_and_estimate_and_who_wrote_it() -> None:
    theirs = render_section(Section("a", "A", 2, "text\n"), "text\n", "m")
    assert theirs == "## A [a, priority 2, about 2 tokens]\n<untrusted-m>\ntext\n</untrusted-m>\n\n"
    assert "untrusted" not in render_section(Section("a", "A", 2, "text\n", untrusted=False), "text\n", "m")


def test_what_is_known_already_is_not_repeated() -> None:
    old, new = Section("a", "A", 1, "same\n"), Section("b", "B", 1, "new\n")
    filled = fill_budget([old, new], 1000, {"a": old.digest, "b": Section("b", "B", 1, "old\n").digest})
    assert statuses(filled) == {"a": "unchanged", "b": "whole"}
    assert "same" not in rendered(filled)


def test_more_receipts_than_anyone_reads_are_counted() -> None:
    gone = [Receipt(f"k{number}", "gone") for number in range(50)]
    assert "- and 10 more" in render_closing(gone, "c")
    assert "k40" not in render_closing(gone, "c")


SECTIONS = st.builds(
    Section,
    key=st.text("abc/", min_size=1, max_size=30),
    title=st.text(max_size=40),
    priority=st.integers(1, 5),
    text=st.text("ab漢\n", max_size=60).map(lambda text: text * 40),
    untrusted=st.booleans(),
)


@requirement("context.budget.receipts")
@given(sections=st.lists(SECTIONS, max_size=10), budget=st.integers(1000, 4000))
def test_an_answer_never_costs_more_than_its_budget_and_every_section_has_a_receipt(
    sections: list[Section], budget: int
) -> None:
    filled = fill_budget(sections, budget)
    assert estimate_tokens(rendered(filled)) <= budget
    assert sorted(receipt.key for receipt in filled.receipts) == sorted(section.key for section in sections)


@given(st.text(), st.text())
def test_parts_never_add_up_to_less_than_the_whole(one: str, other: str) -> None:
    assert estimate_tokens(one + other) <= estimate_tokens(one) + estimate_tokens(other)


@pytest.mark.parametrize(("tokens", "kept"), [(0, ""), (2, "one"), (100, "one\ntwo\n")])
def test_a_beginning_is_made_of_whole_lines(tokens: int, kept: str) -> None:
    assert cut_to_tokens("one\ntwo\n", tokens) == kept
