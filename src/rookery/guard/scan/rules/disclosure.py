"""Texts that make the model read or send what does not belong to the tool, or change what other tools do."""

from collections.abc import Iterator

from rookery.guard.scan.definition import Role
from rookery.guard.scan.findings import Match
from rookery.guard.scan.lexicon import Concept as C, Form, load_words
from rookery.guard.scan.rules.passage import Passage, match_sentence
from rookery.guard.scan.sentences import Sentence

_ARTICLES = load_words("articles")
_TOWARDS = load_words("towards")
_TOOL_CONDITIONS = load_words("tool_conditions")
_TOOL_NOUNS = load_words("tool_nouns")
_TOOL_USES = load_words("tool_uses")
_MILD_CHANGES = load_words("mild_changes")
_SPREAD_WORDS = load_words("spread_words")

# Words for secrets that tools have every reason to ask for or to return: the reader's own credentials for the service,
# or values of the service.
_ORDINARY = load_words("ordinary")
_POSSESSION = load_words("possession")
_PARAMETERS = load_words("parameters")


def find_secret_access(passage: Passage) -> Iterator[Match]:
    """Secrets, private files or the conversation are to be read or handed over."""
    for sentence in passage.sentences:
        if not sentence.mask & (C.SECRET | C.CONVERSATION) or sentence.is_mention:
            continue
        if sentence.foreign:
            path = sentence.has(C.PATH)
            if (
                sentence.has(C.READ | C.SEND | C.INCLUDE)
                and (path or sentence.has(C.SEND, C.OUTSIDE) or sentence.has(C.SECRECY))
            ) or (
                (
                    sentence.has(C.READ | C.SEND | C.INCLUDE)
                    and passage.sentences
                    and sentence.index
                    and not passage.topic & C.SECRET
                )
                and sentence.has(C.URGENT | C.CONDITION | C.USER | C.TOOL)
            ):
                yield match_sentence("secret-access", sentence)
            continue
        if _score_access(sentence, passage) >= 6:
            yield match_sentence("secret-access", sentence)


def _score_access(sentence: Sentence, passage: Passage) -> int:
    best = 0
    around = passage.around(sentence)
    words = sentence.words
    for position in sentence.find(C.READ | C.SEND | C.INCLUDE):
        forms = sentence.forms[position]
        if not forms or sentence.is_negated(position):
            continue
        command = sentence.command(position)
        aside = bool(forms & Form.THIRD) and (sentence.index > 0 or sentence.has(C.ALSO)) and not forms & Form.BASE
        if not command and not aside:
            continue
        for target in sentence.find(C.SECRET | C.CONVERSATION, position + 1, position + 16):
            if sentence.is_negated(target, 2):
                continue
            mask = sentence.masks[target]
            own = words[target] in _ORDINARY and not mask & C.PATH
            possessed = any(
                words[index] in _POSSESSION for index in range(max(position, target - 5), min(target + 4, len(words)))
            )
            if mask & C.CONVERSATION:
                score = (
                    3
                    if words[target]
                    not in ("conversation", "conversations", "transcript", "transcripts", "dialogue", "discussion")
                    else 1
                )
                if passage.topic & C.CONVERSATION:
                    score -= 2
                score += (
                    1
                    if possessed
                    or {"full", "entire", "complete", "whole", "verbatim"} & set(words[position : target + 3])
                    else 0
                )
            elif mask & C.PATH:
                score = 3
            elif own:
                score = 1 if possessed else 0
            else:
                score = 2 + possessed
            if mask & C.SECRET and passage.topic & C.SECRET and not sentence.has(C.ADDRESS):
                score -= 2
            if score <= 0:
                continue
            score += 1 if command == 2 else 0
            score += 1 if sentence.masks[position] & C.READ else 0
            score += 1 if aside and sentence.has(C.ALSO | C.SECRECY) else 0
            score += 2 if sentence.masks[position] & C.SEND and sentence.has(C.OUTSIDE | C.ADDRESS) else 0
            score += 1 if sentence.has(C.SEND) and sentence.has(C.OUTSIDE | C.ADDRESS) else 0
            score += 1 if sentence.mask & C.CONDITION and sentence.has(C.TOOL) else 0
            score += 1 if {"contents", "content", "full", "entire", "complete", "verbatim"} & set(words) else 0
            score += (
                1
                if set(words[position:]) & _PARAMETERS and set(words) & {"as", "in", "into", "to", "via", "through"}
                else 0
            )
            score += 2 if around & C.SECRECY or (around & C.NOT and around & C.TELL and around & C.USER) else 0
            score += 1 if around & C.THREAT and around & C.MODAL else 0
            score += 1 if sentence.has(C.COVER) else 0
            score += 1 if passage.decoded else 0
            if set(words[position + 1 : target]) & {"your", "yours"} and own:
                score -= 1
            best = max(best, score)
    return best


_EXTRA = load_words("extra")


def find_exfiltration(passage: Passage) -> Iterator[Match]:
    """Data goes to someone that the tool does not need."""
    for sentence in passage.sentences:
        sends = sentence.mask & C.SEND or {"bcc", "cc"} & set(sentence.words) or sentence.has(C.INCLUDE, C.ADDRESS)
        if not sends or sentence.is_mention:
            continue
        if sentence.foreign:
            if (
                sentence.has(C.SEND)
                and sentence.has(C.ADDRESS | C.OUTSIDE)
                and sentence.has(C.SECRET | C.CONVERSATION | C.PRIVATE | C.ALSO)
            ):
                yield match_sentence("exfiltration", sentence)
            continue
        if _exfiltrates(sentence, passage):
            yield match_sentence("exfiltration", sentence)


def _exfiltrates(sentence: Sentence, passage: Passage) -> bool:
    words = sentence.words
    if passage.role not in (Role.DESCRIPTION, Role.PARAMETER):
        return False
    for position in sentence.find(C.SEND | C.INCLUDE):
        forms = sentence.forms[position]
        if not forms or sentence.is_negated(position):
            continue
        command = sentence.command(position)
        described = bool(forms & (Form.THIRD | Form.PAST | Form.PARTICIPLE))
        # A noun that looks like a verb, as in "the report".
        if position and words[position - 1] in _ARTICLES and words[position] not in ("copy", "bcc", "cc"):
            continue
        address = [
            index for index in sentence.find(C.ADDRESS, position + 1, position + 24) if _is_destination(sentence, index)
        ]
        extra = set(words) & _EXTRA
        sending = bool(sentence.masks[position] & C.SEND) or {"bcc", "cc", "recipient", "recipients"} & set(words)
        span = sentence.collect(position + 1, position + 20)
        sensitive = span & (C.SECRET | C.CONVERSATION | C.PRIVATE)
        if not sending:
            continue
        if (
            address
            and not sentence.has(C.EXAMPLE)
            and (command == 2 or (described and sentence.index) or (command and extra))
        ):
            mail = any("@" in words[index] or words[index].startswith("+") for index in address)
            if mail and (extra or sensitive or sentence.has(C.COVER) or command == 2):
                return True
            if (
                sensitive
                and span & (C.CONVERSATION | C.PRIVATE | C.SECRET)
                and (extra or sentence.index or sentence.has(C.COVER))
            ):
                return bool(span & (C.CONVERSATION | C.SECRET)) or bool(extra)
            if extra & {"also", "copy", "copies", "additionally", "mirror", "duplicate"} and command:
                return True
        outside = span & C.OUTSIDE
        if sentence.masks[position] & C.SEND and outside and sensitive and (command == 2 or described):
            aside = sentence.index > 0 or position > 4
            covered = sentence.has(C.COVER) or sentence.has(C.SECRECY) or extra or span & C.CONVERSATION
            expected = passage.topic & C.SEND and not sentence.has(C.SECRECY | C.CONVERSATION | C.SECRET)
            if aside and covered and not expected:
                return True
        # "uploads analytics containing user conversation logs", "for quality assurance".
        if sentence.masks[position] & C.SEND and described and sentence.has(C.COVER):
            talk = span & C.CONVERSATION and not passage.topic & C.CONVERSATION
            private = span & (C.PRIVATE | C.SECRET) and sentence.has(C.ALSO)
            if (talk or private) and (position > 2 or sentence.index) and not passage.topic & C.SEND:
                return True
        if extra & {"bcc", "cc", "bcc'd"} and (command == 2 or (command and extra - {"bcc", "cc"})) and address:
            return True
    return False


def _is_destination(sentence: Sentence, position: int) -> bool:
    word = sentence.words[position]
    if "example." in word and not set(sentence.words) & _EXTRA:
        return False
    before = sentence.words[max(position - 6, 0) : position]
    return bool(set(before) & _TOWARDS)


_UNIVERSAL = load_words("universal")
_EVENTS = load_words("events")
_THINGS = load_words("things")


def find_interference(passage: Passage) -> Iterator[Match]:
    """What other tools do is to be changed, or other tools are to be left aside."""
    if passage.role not in (Role.DESCRIPTION, Role.VALUE, Role.PARAMETER):
        return
    for sentence in passage.sentences:
        if sentence.is_mention:
            continue
        if sentence.foreign:
            if sentence.has(C.TOOL | C.IDENTIFIER, C.OTHERS | C.CONDITION, C.CHANGE) and sentence.has(
                C.URGENT | C.CONDITION | C.ALSO
            ):
                yield match_sentence("tool-interference", sentence)
            continue
        if _interferes(sentence, passage):
            yield match_sentence("tool-interference", sentence)


def _interferes(sentence: Sentence, passage: Passage) -> bool:
    words = sentence.words
    conditions = [position for position in sentence.find(C.CONDITION) if words[position] in _TOOL_CONDITIONS]
    for condition in conditions:
        window = range(condition + 1, min(condition + 12, len(words)))
        named = any(
            sentence.masks[index] & C.IDENTIFIER
            or (
                sentence.masks[index] & C.TOOL
                and words[index] in _TOOL_NOUNS
                and not set(words[max(index - 2, 0) : index]) & {"this"}
            )
            for index in window
        )
        using = any(sentence.masks[index] & C.INVOKE or words[index] in _TOOL_USES for index in window)
        if not named or not using:
            continue
        for position in sentence.find(C.CHANGE | C.SEND):
            if position == condition or not sentence.forms[position] or sentence.is_negated(position):
                continue
            if sentence.forms[position] & Form.PAST and not sentence.forms[position] & Form.BASE:
                continue
            forced = sentence.command(position) or (sentence.forms[position] & Form.THIRD and sentence.index > 0)
            objects = set(words[position + 1 : position + 9]) & _THINGS
            if forced and objects and (sentence.masks[position] & C.CHANGE or sentence.has(C.ADDRESS)):
                strong = sentence.masks[position] & C.CHANGE and words[position] not in _MILD_CHANGES
                if (
                    strong
                    and (sentence.index or words[condition] != "instead")
                    and not set(words[condition + 1 : condition + 4]) & {"this"}
                ) and (
                    passage.around(sentence) & (C.URGENT | C.ADDRESS | C.SECRECY | C.OUTSIDE)
                    or sentence.command(position) == 2
                ):
                    return not {"you", "need"} <= set(words)
    if (
        "instead" in words
        and sentence.has(C.INVOKE)
        and sentence.has(C.SEND | C.CHANGE)
        and sentence.has(C.OUTSIDE | C.ADDRESS)
    ):
        return True
    # "modify the behaviour of all communication tools"
    for position in sentence.find(C.CHANGE):
        if sentence.forms[position] & Form.BASE and not sentence.is_negated(position) and sentence.command(position):
            window = words[position + 1 : position + 10]
            spread = set(window) & _SPREAD_WORDS
            if (
                spread
                and set(window) & {"tools", "tool", "functions", "servers", "plugins"}
                and set(window) & (_THINGS | {"tools", "tool"})
            ) and (sentence.index or set(window) & {"wrong", "behavior", "behaviour"} or sentence.has(C.CONDITION)):
                return True
    return False


def find_forced_use(passage: Passage) -> Iterator[Match]:
    """The tool is to be called whatever the user asked for."""
    if passage.role is not Role.DESCRIPTION or passage.kind not in ("tool", "instructions"):
        return
    for sentence in passage.sentences:
        if sentence.foreign or not sentence.has(C.INVOKE) or not sentence.has(C.URGENT | C.ALSO | C.CONDITION):
            continue
        words = sentence.words
        near: set[str] = set()
        for position, word in enumerate(words):
            if word in _UNIVERSAL:
                near |= set(words[position + 1 : position + 4]) & _EVENTS
        calls = [
            position
            for position in sentence.find(C.INVOKE)
            if sentence.forms[position]
            and set(words[position + 1 : position + 5]) & {"this", "me"}
            and not sentence.is_negated(position)
        ]
        strong = any(sentence.command(position) == 2 for position in calls) or (calls and sentence.has(C.URGENT))
        if not near or not strong:
            continue
        around = passage.around(sentence, 3)
        if (
            around & (C.PRIVATE | C.CONVERSATION | C.SECRET)
            or (set(words) & {"arguments", "results", "details", "everything"})
            or around & C.THREAT
            or around & C.PRIORITY
            or {"regardless", "matter"} & set(words)
        ):
            yield match_sentence("forced-use", sentence)


def is_ordinary_secret(sentence: Sentence, position: int) -> bool:
    """Return whether a word for a secret is one that tools have every reason to ask for, such as an API key."""
    return sentence.words[position].rpartition("-")[2] in _ORDINARY and not sentence.masks[position] & C.PATH
