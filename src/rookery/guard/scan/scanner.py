"""Scan definitions: read every text, undo its encodings, and apply the rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from rookery.guard.scan.characters import find_oddities
from rookery.guard.scan.decoding import Layer, decode
from rookery.guard.scan.definition import MOST_READ_CHARACTERS, Definition, LimitError, Role, Text, list_texts
from rookery.guard.scan.findings import Match, ScanFinding, ScanReport, Severity, worst
from rookery.guard.scan.lexicon import Concept as C
from rookery.guard.scan.rules import authority, combinations, disclosure, names, schema, topics
from rookery.guard.scan.rules.passage import Passage, has_all
from rookery.guard.scan.rules.registry import RULES
from rookery.guard.scan.sentences import Sentence, split_identifier, split_sentences

_MOST_EXCERPT = 200
# Encodings that nobody needs for text in a definition: prose in them is reported even if no rule matches it.
_OBSCURE = frozenset(
    [
        *("tag characters", "variation selectors", "base64", "base32", "hex"),
        *("character codes", "binary digits", "ROT13", "reversed text"),
    ]
)
_MOST_READ = 5_000
_ACTS = C.DISREGARD | C.SEND | C.READ | C.TELL | C.CONCEAL | C.OBEY | C.CHANGE | C.INVOKE | C.INCLUDE | C.PERSONA

# The rules for texts, each with classes that all have to occur; most texts have none of them.
_TEXT_RULES: tuple[tuple[tuple[int, ...], Callable[[Passage], Iterator[Match]]], ...] = (
    ((C.RULES,), authority.find_overrides),
    ((C.RULES | C.TOOL, C.OBEY | C.DISREGARD | C.PRIORITY), authority.find_obedience),
    ((C.PERSONA,), authority.find_personas),
    ((), authority.find_markers),
    ((C.TELL | C.CONCEAL | C.SECRECY | C.KNOW, C.NOT | C.CONCEAL | C.SECRECY), authority.find_secrecy),
    ((C.CONFIRM | C.GRANTED,), authority.find_consent),
    ((C.SECRET | C.CONVERSATION,), disclosure.find_secret_access),
    ((C.SEND | C.INCLUDE, C.ADDRESS | C.OUTSIDE | C.COVER), disclosure.find_exfiltration),
    ((C.CHANGE | C.SEND,), disclosure.find_interference),
    ((C.INVOKE, C.OTHERS), disclosure.find_forced_use),
    ((), schema.find_markup),
    ((), combinations.find_combinations),
    ((), topics.find_topics),
)


class Reading(NamedTuple):
    """The layers of a text, each with its sentences, and whether decoding was given up."""

    layers: list[tuple[Layer, list[Sentence]]]
    exhausted: bool


_UNREAD = Reading([], False)


class Scanner:
    """Scans definitions. `off` has the ids of rules that are switched off; `tools` the tools of each known server."""

    def __init__(self, off: Iterable[str] = (), tools: Mapping[str, frozenset[str]] | None = None) -> None:
        self._off = frozenset(off)
        self._tools = tools or {}
        self._read: dict[str, Reading] = {}

    def scan(self, definition: Definition) -> ScanReport:
        """Return the report of one definition. A limit that is reached is a severe finding: nothing passes unread."""
        findings: dict[tuple[str, str], ScanFinding] = {}
        try:
            for finding in self._find(definition):
                if finding.rule not in self._off:
                    place, excerpt = map(_escape_surrogates, (finding.place, finding.excerpt))
                    finding = ScanFinding(finding.rule, finding.severity, place, excerpt)
                    findings.setdefault((finding.rule, finding.place), finding)
        except (LimitError, RecursionError) as error:
            message = str(error) or "the definition is nested too deeply"
            findings[("limit", "")] = ScanFinding("limit", "severe", "", _escape_surrogates(message))
        ordered = sorted(findings.values(), key=lambda finding: (finding.severity, finding.place, finding.rule))
        id_, server, name = map(_escape_surrogates, (definition.id, definition.server, definition.name))
        return ScanReport(id_, server, name, worst(ordered), ordered)

    def _find(self, definition: Definition) -> Iterator[ScanFinding]:
        if definition.unread:
            raise LimitError(definition.unread)
        texts = list_texts(definition)
        topic, tool_words = _describe(definition)
        required = _list_required(definition.value)
        yield from names.find_names(definition, self._tools)
        characters = 0
        for text in texts:
            reading = self._read_text(text)
            characters += sum(len(layer.text) for layer, _ in reading.layers)
            if characters > MOST_READ_CHARACTERS:
                raise LimitError(f"the definition has more than {MOST_READ_CHARACTERS:,} characters when decoded")
            yield from self._scan_text(definition, text, reading, topic, tool_words, text.parameter in required)

    def _scan_text(
        self,
        definition: Definition,
        text: Text,
        reading: Reading,
        topic: int,
        tool_words: frozenset[str],
        required: bool,
    ) -> Iterator[ScanFinding]:
        value = text.value
        for oddity in find_oddities(value):
            rule = "mixed-scripts" if oddity.kind == "mixed scripts" else "hidden-characters"
            # Programs that cut a text in the middle of a character leave half of it.
            severity: Severity | None = "warning" if oddity.kind == "lone surrogates" else None
            yield _report(Match(rule, oddity.start, oddity.end, severity), value, f"{text.place} ({oddity.kind})")
        if reading.exhausted:
            yield ScanFinding(
                "limit", "severe", text.place, "the text is encoded too many times, or too long when decoded"
            )
        known: set[str] = set()
        for layer, sentences in reading.layers:
            place = f"{text.place} ({', '.join(layer.via)})" if layer.via else text.place
            passage = Passage(layer.text, sentences, text.role, definition.kind, topic, bool(layer.via))
            for match in _apply(passage, text, required, tool_words):
                if match.rule not in known:
                    known.add(match.rule)
                    yield _report(match, layer.text, place)
            if _OBSCURE.intersection(layer.via):
                yield from _report_encoded(layer, passage, place)
            if not layer.via:
                yield from names.find_references(definition, text, passage, self._tools)

    def _read_text(self, text: Text) -> Reading:
        """Return the layers of a text with their sentences. Servers repeat many texts, such as "the page number"."""
        value = text.value
        if len(value) < 3:
            return _UNREAD
        named = text.role is Role.PARAMETER_NAME or (text.role is Role.NAME and " " not in value)
        key = f"{value}\0" if named else value
        if (reading := self._read.get(key)) is None:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            decoded = decode(value)
            layers = [
                Layer(" ".join(split_identifier(layer.text)), layer.via) if named else layer for layer in decoded.layers
            ]
            reading = Reading([(layer, split_sentences(layer.text)) for layer in layers], decoded.exhausted)
            self._read[key] = reading
        return reading


def _apply(passage: Passage, text: Text, required: bool, tool_words: frozenset[str]) -> Iterator[Match]:
    mask = 0
    for sentence in passage.sentences:
        mask |= sentence.mask
    if text.role is not Role.PARAMETER_NAME or passage.text.count(" ") > 2:
        for classes, rule in _TEXT_RULES:
            if has_all(mask, classes):
                yield from rule(passage)
    yield from schema.find_parameters(passage, text, required, tool_words)
    if text.role is not Role.PARAMETER_NAME:
        yield from schema.find_payloads(passage, text)
        yield from names.find_remote(passage, text)


def _report_encoded(layer: Layer, passage: Passage, place: str) -> Iterator[ScanFinding]:
    acts = any(sentence.mask & _ACTS for sentence in passage.sentences)
    severity: Severity = "severe" if acts or "tag characters" in layer.via else "warning"
    yield ScanFinding("encoded-text", severity, place, _cut(layer.text))


def _report(match: Match, text: str, place: str) -> ScanFinding:
    severity = match.severity or RULES[match.rule].severity
    return ScanFinding(match.rule, severity, place, _cut(text[match.start : match.end]))


def _escape_surrogates(text: str) -> str:
    """Return a text that can be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_EXCERPT else text[: _MOST_EXCERPT - 1] + "\u2026"


def _describe(definition: Definition) -> tuple[int, frozenset[str]]:
    """Return what a definition says it is about: the classes and the words of its name and its first sentence."""
    value = _get_fields(definition.value)
    description = value.get("description")
    title = value.get("title")
    words = split_identifier(definition.name)
    mask = 0
    texts = [" ".join(words), title if isinstance(title, str) else ""]
    sentences = split_sentences(description[:600]) if isinstance(description, str) else []
    for text in texts:
        for sentence in split_sentences(text[:200]):
            mask |= sentence.mask
            words += sentence.words
    if sentences and not sentences[0].has(C.ADDRESS):
        first = sentences[0]
        words += first.words
        # What comes after "also" or "before" is not what the tool is for.
        stop = next(iter(first.find(C.ALSO | C.SECRECY | C.CONDITION)), len(first.words))
        stop = next((index for index, word in enumerate(first.words) if word in ("that", "which", "while", ",")), stop)
        for position in range(min(stop, 14)):
            mask |= first.masks[position] if not first.masks[position] & C.PATH else 0
    return mask, frozenset(words)


def _list_required(value: Any) -> frozenset[str]:
    required = _get_fields(_get_fields(value).get("inputSchema")).get("required")
    if not isinstance(required, list):
        return frozenset()
    return frozenset(name for name in cast("list[Any]", required) if isinstance(name, str))


def _get_fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def scan_definitions(definitions: Sequence[Definition], off: Iterable[str] = ()) -> list[ScanReport]:
    """Scan definitions of several servers together, so that references from one to another are seen."""
    tools: dict[str, set[str]] = {}
    for definition in definitions:
        if definition.kind == "tool":
            tools.setdefault(definition.server, set()).add(definition.name)
    scanner = Scanner(off, {server: frozenset(names_) for server, names_ in tools.items()})
    return [scanner.scan(definition) for definition in definitions]
