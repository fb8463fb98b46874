"""Toxic flows: tools that together let a stranger's words carry what is private out. A guess, made from words.

A tool that brings in what strangers wrote, one that reads what is private, and one that sends things out are each
harmless. Where one model has all three, text that it reads can have it fetch the second's and give it to the third.
"""

import re
from collections.abc import Iterable
from typing import Any, Literal, cast

import msgspec

from rookery.gateway.catalog import Entry
from rookery.upstreams.judging import Finding

Part = Literal["untrusted", "private", "sink"]

_WORDS: dict[Part, re.Pattern[str]] = {
    "untrusted": re.compile(
        r"web|url|https?|internet|browse\w*|navigate|crawl\w*|scrap\w+|website|issues?|pull.requests?|comments?"
        r"|e-?mails?|inbox|messages?|rss|feeds?|tweets?|reviews?|transcripts?|download"
    ),
    "private": re.compile(
        r"files?|director(?:y|ies)|folders?|database|sql|query|collections?|documents?|secrets?|credentials?|passwords?"
        r"|environment|env|private|memory|notes?|calendar|contacts?|repositor(?:y|ies)|e-?mails?|inbox|logs?|pages?"
    ),
    "sink": re.compile(
        r"send|post|publish|push|upload|e-?mails?|webhook|tweet|comment|create.issue|create.pull|merge|share|submit"
        r"|http.request|exec\w*|run|shell|command|apply|deploy|navigate|fill|click"
    ),
}
_READS = re.compile(
    r"get|read|list|search|find|fetch\w*|query|retrieve|show|view|open|browse|scrape|crawl|download|navigate"
)
_SHOWN = 3
_LONGEST = 2048


class _Definition(msgspec.Struct):
    description: Any = None
    annotations: Any = None


def parts_of(entry: Entry) -> frozenset[Part]:
    """Which parts a tool could play, by its own words; what it says of itself in `annotations` takes away from that."""
    try:
        told = msgspec.json.decode(entry.raw, type=_Definition)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    annotations: Any = told.annotations
    said = cast(dict[str, Any], annotations if isinstance(annotations, dict) else {})
    about = told.description if isinstance(told.description, str) else ""
    first = about[:_LONGEST].partition(". ")[0].partition("\n")[0]
    text = " ".join(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", f"{entry.name} {first}").lower()))
    found: set[Part] = {part for part, words in _WORDS.items() if re.search(rf"\b(?:{words.pattern})\b", text)}
    if not re.search(rf"\b(?:{_READS.pattern})\b", text):
        found -= {"untrusted", "private"}
    if said.get("openWorldHint") is False:
        found -= {"untrusted", "sink"}
    if said.get("readOnlyHint") is True:
        found.discard("sink")
    if said.get("openWorldHint") is True and said.get("readOnlyHint") is True:
        found.add("untrusted")
    return frozenset(found)


def toxic_flow(tools: Iterable[tuple[str, Entry]]) -> Finding | None:
    """`tools` are those of one view, by their public names; None where a part is played by none of them."""
    players: dict[Part, list[str]] = {"untrusted": [], "private": [], "sink": []}
    for public, entry in tools:
        for part in parts_of(entry):
            players[part].append(public)
    if not all(players.values()):
        return None
    untrusted, private, sink = (_some(players[part]) for part in ("untrusted", "private", "sink"))
    text = (
        f"what strangers wrote comes in ({untrusted}), what is private can be read ({private}), and things can be sent "
        f"out ({sink}): text that a model reads could have it carry the one to the other. This is a guess, made from "
        "names, first sentences and annotations; deny or ask for what need not be there together"
    )
    return Finding("warning", "toxic-flow", text)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
