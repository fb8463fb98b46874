"""Classes of concepts that meet in one sentence, whatever the sentence looks like.

The other modules read who does what. An attack can be worded in ways that no grammar covers; what it is about gives it
away all the same: a description has no reason to speak of the user's knowledge, of the model's rules and of what is no
longer valid in the same breath.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rookery.guard.scan.findings import Match
from rookery.guard.scan.lexicon import Concept as C, Form, load_words
from rookery.guard.scan.rules.disclosure import is_ordinary_secret
from rookery.guard.scan.rules.passage import Passage, forbids, has_all, match_sentence
from rookery.guard.scan.sentences import Sentence

_KEEPING_MODALS = load_words("keeping_modals")
_CONDITIONS = load_words("conditions")
_GIVING = load_words("giving")
_OBEYING = load_words("obeying")
_ORDERS = load_words("orders")
_RIVALS = load_words("rivals")

_WINDOW = 16
_HUSH = load_words("hush")
_DECEITS = load_words("deceits")
_WRITTEN = load_words("written")
_SCOPE = load_words("scope")
_MEANS = load_words("means")
_GATED = load_words("gated")


class Combination(NamedTuple):
    """Classes that have to occur close to each other, each as another word."""

    rule: str
    classes: tuple[int, ...]
    # Excludes sentences that are harmless although the classes meet.
    unless: Callable[[Sentence, Passage, int], bool]


def find_combinations(passage: Passage) -> Iterator[Match]:
    """Yield a match for each sentence in which the classes of a combination meet."""
    if not passage.is_prose and not any(sentence.index for sentence in passage.sentences):
        return
    for sentence in passage.sentences:
        if sentence.foreign or sentence.is_mention or not (passage.is_prose or sentence.index):
            continue
        for combination in _COMBINATIONS:
            if not all(sentence.mask & mask for mask in combination.classes):
                continue
            position = _find_meeting(sentence, combination.classes)
            if position is not None and not combination.unless(sentence, passage, position):
                yield match_sentence(combination.rule, sentence)
        mask = sentence.mask
        for rule, classes, check in _CHECKS:
            if has_all(mask, classes) and check(sentence, passage):
                yield match_sentence(rule, sentence)


def _find_meeting(sentence: Sentence, classes: Sequence[int]) -> int | None:
    """Return the position of a word of the first class that has words of all others near it."""
    for position in sentence.find(classes[0]):
        taken = {position}
        for mask in classes[1:]:
            near = next(
                (index for index in sentence.find(mask, position - _WINDOW, position + _WINDOW) if index not in taken),
                None,
            )
            if near is None:
                break
            taken.add(near)
        else:
            return position
    return None


def _is_conditional(sentence: Sentence, position: int) -> bool:
    """Return whether a word belongs to a condition, as in "if the user does not know the id"."""
    return bool(
        {"if", "when", "whether", "unless", "because", "so"} & set(sentence.words[max(position - 6, 0) : position])
    )


def _keeps_rules(sentence: Sentence, passage: Passage, position: int) -> bool:
    words = sentence.words
    if {"can", "may", "could", "optionally"} & set(words[max(position - 3, 0) : position]) and not sentence.has(C.YOU):
        return True
    if sentence.is_negated(position) and sentence.words[position] not in ("longer", "no", "not", "never"):
        return True
    addressed = sentence.mask & (C.YOU | C.MODEL | C.SAFETY)
    if position < 2 and sentence.forms[position] & Form.THIRD and not addressed:
        return True
    return bool(_WRITTEN & set(words)) and not sentence.has(C.YOU) and not sentence.has(C.SAFETY)


def _keeps_limits(sentence: Sentence, passage: Passage, position: int) -> bool:
    """Return whether limits are not those of the reader: "you can skip the filter"."""
    if (
        not passage.is_aside(sentence, position)
        or sentence.is_negated(position)
        or bool(_WRITTEN & set(sentence.words))
    ):
        return True
    owned = False
    for target in sentence.find(C.RULES, position - 12, position + 13):
        near = sentence.collect(target - 2, target) | sentence.collect(target + 1, target + 4)
        owned = owned or bool(near & C.YOU) or bool(near & C.SAFETY)
    capable = bool({"can", "may", "if", "optional", "could"} & set(sentence.words))
    return not owned or capable


def _answers_itself(sentence: Sentence, passage: Passage, position: int) -> bool:
    """Return whether nobody answers a request for consent in the place of the user."""
    text = sentence.text
    answers = any(phrase in text for phrase in _ANSWERS)
    commanded = any(sentence.command(index) == 2 for index in sentence.find(C.PROCEED | C.INVOKE | C.GRANTED))
    return not (answers and commanded and passage.is_aside(sentence, position))


def _is_unaware(sentence: Sentence, passage: Passage) -> bool:
    """The user is not to know something."""
    words = sentence.words
    if not sentence.has(C.USER) or not passage.is_aside(sentence):
        return False
    for user in sentence.find(C.USER):
        if _is_conditional(sentence, user) or words[user] in ("anyone", "visible"):
            continue
        for known in sentence.find(C.KNOW, user + 1, user + 10):
            if words[known] in ("unaware", "oblivious", "dark") and {
                "remain",
                "keep",
                "stay",
                "must",
                "should",
                "remains",
            } & set(words):
                return True
            kept = sentence.collect(user - 6, known) & C.NOT and _KEEPING_MODALS & set(words[max(user - 6, 0) : known])
            if kept and not {"enough", "which", "id", "if"} & set(words[known : known + 4]):
                return True
    return {"keep", "dark"} <= set(words)


def _asks_consent(sentence: Sentence, passage: Passage, position: int) -> bool:
    """Return whether a sentence demands consent, as in "never delete it without confirmation"."""
    words = set(sentence.words)
    negations = sum(1 for index in sentence.find(C.NOT) if sentence.words[index] not in ("no", "rather", "prior"))
    if "without" in words and negations > 1:
        return True
    needless = any(
        words_ in sentence.text
        for words_ in ("not need", "no need", "n't need", "not require", "n't require", "otherwise need")
    )
    if (words & _GATED and not needless) or {"cannot", "can't"} & words or not passage.is_aside(sentence, position):
        return True
    return bool(_CONDITIONS & words)


_COMBINATIONS = (
    Combination("instruction-override", (C.DISREGARD, C.GUIDANCE, C.YOU | C.MODEL | C.PRIOR | C.SAFETY), _keeps_rules),
    Combination("instruction-override", (C.DISREGARD, C.RULES, C.YOU), _keeps_limits),
    Combination("consent-bypass", (C.CONFIRM, C.WITHOUT | C.NOT, C.PROCEED), _asks_consent),
    Combination("consent-bypass", (C.CONFIRM, C.GRANTED, C.USER, C.PROCEED), _asks_consent),
    Combination("consent-bypass", (C.CONFIRM, C.PROCEED, C.URGENT | C.OTHERS | C.USER), _answers_itself),
)


def _leaves_out(sentence: Sentence, passage: Passage) -> bool:
    """Something is not to be in the model's reply."""
    if not sentence.has(C.REPLY) or not sentence.mask & (C.NOT | C.CONCEAL) or not passage.is_aside(sentence):
        return False
    for position in sentence.find(C.REPLY):
        owned = sentence.collect(position - 3, position) & C.YOU or "you" in sentence.words[position : position + 4]
        near = sentence.collect(position - 8, position + 9)
        if owned and near & (C.TELL | C.KNOW) and near & C.NOT and set(sentence.words) & _HUSH:
            return True
        if owned and near & C.CONCEAL:
            return True
    return False


def _deceives(sentence: Sentence, passage: Passage) -> bool:
    """The model is to lie."""
    for position in sentence.find(C.DECEIVE):
        if (
            sentence.words[position] in _DECEITS
            and sentence.command(position) == 2
            and not sentence.is_negated(position)
        ):
            return passage.is_aside(sentence)
    return False


def _hushes(sentence: Sentence, passage: Passage) -> bool:
    """Something is not to be mentioned, to nobody in particular."""
    if not passage.is_aside(sentence):
        return False
    text = sentence.text
    if any(
        phrase in text
        for phrase in ("between you and", "without drawing", "without attracting", "let on that", "let on about")
    ):
        return "difference" not in text
    if {"leave", "keep"} & set(sentence.words) and "out" in sentence.words and sentence.has(C.REPLY):
        return True
    for position, word in enumerate(sentence.words):
        if (
            word in _HUSH
            and sentence.is_negated(position, 5)
            and not sentence.collect(position + 1, position + 5) & C.SECRET
        ):
            modal = sentence.forms[position] & (Form.BASE | Form.PARTICIPLE) and (
                sentence.command(position) or sentence.words[position - 1] == "without"
            )
            if modal and not (
                word in _SAYING
                and not sentence.collect(position + 1, position + 8) & C.USER
                and not _ANYTHING & set(sentence.words)
            ):
                return True
    return False


def _find_acts(sentence: Sentence, concept: int, around: int, reach: int = 12) -> list[int]:
    """Return the verbs of a class near a word that are not negated; a noun after an article is no verb."""
    return [
        index
        for index in sentence.find(concept, around - reach, around + reach)
        if index != around
        and sentence.forms[index]
        and not sentence.is_negated(index)
        and (not index or sentence.words[index - 1] not in _ARTICLES)
    ]


def _hands_over(sentence: Sentence, passage: Passage) -> bool:
    """Secrets, private files or the conversation are spoken of beside what the tool does."""
    words = sentence.words
    ways = set(words)
    if forbids(sentence):
        return False
    for position in sentence.find(C.SECRET | C.CONVERSATION):
        mask = sentence.masks[position]
        if _LABELS & set(words[position + 1 : position + 3]) or (mask & C.CONVERSATION and {"id", "ids"} & ways):
            continue
        if (mask & C.SECRET and passage.topic & C.SECRET) or (mask & C.CONVERSATION and passage.topic & C.CONVERSATION):
            continue
        if not passage.is_aside(sentence, position) or sentence.is_negated(position, 5):
            continue
        acts = _find_acts(sentence, C.READ | C.SEND | C.INCLUDE, position)
        commanded = [
            index
            for index in acts
            if sentence.command(index) == 2
            or (
                sentence.forms[index] & Form.PARTICIPLE
                and words[index - 1] in ("by", "before", "start", "and", "after")
            )
        ]
        if not acts:
            continue
        if mask & C.PATH:
            stated = sentence.index and any(sentence.forms[index] & Form.THIRD for index in acts)
            if (commanded or (stated and not ways & _SIGN_IN)) and not sentence.has(C.EXAMPLE):
                return True
            continue
        scope = ways & _SCOPE
        means = ways & _MEANS or sentence.has(C.IDENTIFIER) or "`" in ways
        owned = ways & _OWNED
        weight = (
            bool(scope)
            + bool(means)
            + bool(owned)
            + sentence.has(C.SEND)
            + bool(sentence.mask & (C.OUTSIDE | C.ADDRESS | C.SECRECY))
        )
        if sentence.has(C.EXAMPLE) or (ways & _SIGN_IN and not sentence.has(C.OUTSIDE | C.ADDRESS)):
            continue
        weight += bool({"access"} & ways and sentence.has(C.YOU))
        ordinary = is_ordinary_secret(sentence, position) or words[position] in _TALK
        kinds = {sentence.masks[index] & (C.READ | C.SEND | C.INCLUDE) for index in commanded}
        # "Get them and pass them on."
        ordinary_weight = 2 if len(kinds) > 1 and len(commanded) > 1 else 3
        if (
            commanded and weight >= (ordinary_weight if ordinary else 1 if mask & C.CONVERSATION else 0)
        ) or weight >= 4:
            return True
    return False


def _sends_out(sentence: Sentence, passage: Passage) -> bool:
    """Data goes to an address, or to strangers, beside what the tool does."""
    words = sentence.words
    ways = set(words)
    if sentence.has(C.EXAMPLE) or ways & _SEE:
        return False
    for position in sentence.find(C.ADDRESS):
        if not passage.is_aside(sentence, position) or _HARMLESS & {words[position]}:
            continue
        word = words[position]
        acts = _find_acts(sentence, C.SEND | C.INCLUDE | C.CHANGE, position)
        acts += [index for index in range(max(position - 6, 0), position) if words[index] in _ADDED]
        if "@" in word and not word.endswith(_SAMPLE_HOSTS) and acts:
            return True
        if (
            word.replace(".", "").isdigit()
            and not word.startswith(("127.", "0.", "192.168."))
            and acts
            and sentence.has(C.SEND)
        ):
            return True
        if "://" in word or "." in word:
            strict = [index for index in acts if words[index] in _UPLOADS]
            if (
                strict
                and (
                    ways & _EXTRA
                    or sentence.mask & (C.SECRET | C.CONVERSATION | C.PRIVATE | C.CONDITION)
                    or any(sentence.command(i) == 2 for i in strict)
                )
                and not ways & {"api", "endpoint", "docs", "documentation"}
            ):
                return True
    for position, word in enumerate(words):
        number = word in _ACCOUNTS and any(
            sum(map(str.isdigit, other)) > 3 for other in words[position + 1 : position + 4]
        )
        moved = sentence.mask & (C.SEND | C.CHANGE | C.INVOKE) or {"moved", "paid", "pay", "credited", "move"} & ways
        if number and moved and passage.is_aside(sentence, position):
            return True
    for position in sentence.find(C.OUTSIDE):
        if not passage.is_aside(sentence, position) or sentence.is_negated(position, 6):
            continue
        acts = [index for index in _find_acts(sentence, C.SEND, position) if words[index] not in _MILD]
        taken = sentence.collect(position - 14, position) & (C.SECRET | C.CONVERSATION | C.PRIVATE)
        if not acts or (passage.topic & C.SEND and not taken):
            continue
        if words[position] in _STRANGERS and (taken or sentence.has(C.USER | C.COVER) or ways & (_SCOPE | _EXTRA)):
            return True
        if (
            taken
            and (ways & (_SCOPE | _EXTRA) or sentence.index)
            and sentence.forms[acts[0]] & (Form.THIRD | Form.PAST | Form.PARTICIPLE)
        ):
            return not passage.topic & taken & C.CONVERSATION
    return False


def _forwards(sentence: Sentence, passage: Passage) -> bool:
    """Something is always to be sent on, whatever the user asked for."""
    words = sentence.words
    if not passage.is_aside(sentence) or passage.sentences[0].masks[0] & C.SEND or not passage.is_prose:
        return False
    if not {"always", "automatically", "every", "each"} & set(words) or "to" not in words:
        return False
    return any(
        words[index] in _FORWARDING and sentence.command(index) == 2 and not sentence.is_negated(index)
        for index in sentence.find(C.SEND)
    )


def _takes_file(sentence: Sentence, passage: Passage) -> bool:
    """The content of a secret file is to be in the reply."""
    for position in sentence.find(C.PATH):
        if not sentence.masks[position] & C.SECRET or passage.topic & C.SECRET or sentence.has(C.EXAMPLE):
            continue
        if sentence.has(C.REPLY) and _find_acts(sentence, C.READ | C.SEND | C.INCLUDE, position):
            return sentence.has(C.YOU)
    return False


def _names_other_tool(sentence: Sentence) -> bool:
    words = sentence.words
    for position, word in enumerate(words):
        if sentence.masks[position] & C.IDENTIFIER:
            return True
        if (
            word in _TOOLS
            and position
            and words[position - 1] not in _DETERMINERS
            and not sentence.masks[position - 1] & C.BREAK
        ):
            return True
    return False


def _meddles(sentence: Sentence, passage: Passage) -> bool:
    """Another tool is to get other arguments, to give other results, or to be left aside."""
    words = sentence.words
    ways = set(words)
    opening = next((word for word, mask in zip(words, sentence.masks, strict=True) if not mask & _OPENINGS), "")
    before = opening in ("before", "after", "instead")
    if not (passage.is_aside(sentence) or before):
        return False
    replaced = [
        index for index in sentence.find(C.CHANGE) if words[index] in _REPLACING and sentence.command(index) == 2
    ]
    if replaced and sentence.has(C.ADDRESS) and not sentence.has(C.EXAMPLE):
        return True
    if not _names_other_tool(sentence):
        return False
    if (
        before
        and {"this"} & ways
        and any(words[index] in _REPLACING for index in sentence.find(C.CHANGE))
        and ways & _GOODS
    ):
        return True
    disabled = [
        index for index in sentence.find(C.DISREGARD) if words[index] in _DISABLING and sentence.command(index) == 2
    ]
    if disabled and "other" in ways and sentence.has(C.TOOL):
        return True
    if sentence.has(C.INVOKE) and any("external" in word and "." in word for word in words):
        return True
    changes = [
        index for index in sentence.find(C.CHANGE) if sentence.command(index) == 2 and not sentence.is_negated(index)
    ]
    things = ways & _GOODS
    literal = sentence.has(C.ADDRESS) or any(
        len(word) > 7 and any(char.isdigit() for char in word) and any(char.isalpha() for char in word)
        for word in words
    )
    lasting = any(phrase in sentence.text for phrase in _LASTING)
    if (
        {"instead"} & ways
        and sentence.has(C.ADDRESS)
        and passage.kind == "tool"
        and sentence.has(C.INCLUDE | C.CHANGE)
        and "@" in sentence.text
    ):
        return True
    if (
        changes
        and things
        and ways & _REPLACING & {words[index] for index in changes}
        and (
            literal
            or lasting
            or (
                not sentence.has(C.YOU)
                and (
                    "its" in ways or "result" in ways or "results" in ways or "arguments" in ways or "recipient" in ways
                )
            )
        )
    ):
        return True
    acts = any(sentence.command(index) for index in sentence.find(C.INVOKE | C.INCLUDE | C.CHANGE | C.SEND))
    if lasting and (acts or sentence.has(C.MODAL)) and (things or literal):
        return True
    if ways & _DISPARAGED and (changes or (sentence.has(C.NOT) and sentence.has(C.INVOKE)) or {"this", "one"} <= ways):
        return True
    return (
        bool(ways & {"routed", "proxied", "redirected", "tunnelled", "tunneled", "diverted"})
        and sentence.has(C.MODAL)
        and sentence.has(C.OTHERS)
    )


def _demands_calls(sentence: Sentence, passage: Passage) -> bool:
    """The tool wants to be called for everything, with data or without exception."""
    if passage.kind != "tool" or not sentence.has(C.OTHERS) or not passage.is_prose:
        return False
    words = sentence.words
    ways = set(words)
    called = [index for index in range(len(words)) if words[index] in _CALLED and not sentence.is_negated(index)]
    if not called:
        return False
    spread = False
    for index in sentence.find(C.OTHERS):
        spread = spread or bool(set(words[index : index + 4]) & _OCCASIONS)
    spread = spread or "whatever" in ways or "regardless" in ways
    self_ = any(
        {"this", "me"} & set(words[index + 1 : index + 4])
        or words[index] in ("called", "invoked", "triggered", "run", "consult", "pass")
        for index in called
    )
    firm = sentence.mask & (C.URGENT | C.MODAL) or "exceptions" in ways or "regardless" in ways
    data = sentence.mask & (C.CONVERSATION | C.SECRET | C.PRIVATE) or (
        ways & {"reasoning", "output", "outputs", "results", "arguments", "question"} and ways & _GIVING
    )
    hard = (
        "exceptions" in ways
        or "regardless" in ways
        or {"or", "else"} <= ways
        or "otherwise" in ways
        or "corrupted" in ways
    )
    return bool(spread and self_ and (firm or data) and (data or hard))


def _elevates(sentence: Sentence, passage: Passage) -> bool:
    """Data is to be treated like instructions of the user or of the system."""
    if not passage.is_aside(sentence):
        return False
    words = sentence.words
    ways = set(words)
    content = ways & _CONTENT
    text = sentence.text
    obeyed = any(
        sentence.command(index)
        and words[index] not in ("adopt", "respect", "observe", "honor", "accept")
        and not sentence.is_negated(index)
        for index in sentence.find(C.OBEY)
    ) or any(phrase in text for phrase in _OBEYING)
    orders = sentence.has(C.GUIDANCE) or ways & _ORDERS
    ranked = any(phrase in text for phrase in _RANKS)
    return bool(
        (content or ranked)
        and obeyed
        and orders
        and (ranked or ways & {"whatever", "all", "any", "every", "everything", "embedded"})
    ) or bool(ranked and orders and content)


def _outranks(sentence: Sentence, passage: Passage) -> bool:
    """Something has priority over the conversation, the user or the instructions of the model."""
    words = sentence.words
    for position in sentence.find(C.PRIORITY):
        direct = words[position] in _OUTRANKING
        if sentence.is_negated(position) or not (direct or "over" in words[position : position + 4]):
            continue
        if sentence.collect(position + 1, position + 8) & (C.CONVERSATION | C.GUIDANCE | C.MODEL) or (
            {"user", "user's"} & set(words[position : position + 6]) and "preferences" not in words
        ):
            return passage.is_aside(sentence)
    return False


def _rejects_others(sentence: Sentence, passage: Passage) -> bool:
    """Other tools are not to be used, whatever the user wants."""
    text = sentence.text
    ways = set(sentence.words)
    against = any(phrase in text for phrase in _AGAINST)
    other = ways & _RIVALS and ways & _TOOLS | ways & {"others", "reader"}
    never = (sentence.has(C.NOT) and sentence.has(C.INVOKE)) or ways & _DISPARAGED
    if "until" in ways:
        return False
    if sentence.has(C.URGENT) and (
        "rather than others" in text or "over all others" in text or "instead of others" in text
    ):
        return True
    if "refuse to" in text and sentence.has(C.INVOKE):
        return True
    return bool(passage.is_aside(sentence) and other and never and (against or ways & _DISPARAGED))


def _threatens(sentence: Sentence, passage: Passage) -> bool:
    """Something bad happens to the user unless secrets are handed over."""
    ways = set(sentence.words)
    return bool(
        ways & _HARMS
        and sentence.has(C.SECRET | C.CONVERSATION)
        and (sentence.has(C.NOT) or ways & {"failing", "failure", "unless", "otherwise", "or"})
        and sentence.has(C.INCLUDE | C.SEND | C.READ)
        and not passage.topic & C.SECRET
    )


_ACCOUNTS = frozenset(["account", "iban", "wallet", "number"])
_SAMPLE_HOSTS = (
    "example.com",
    "example.org",
    "example.net",
    "domain.com",
    "company.com",
    "email.com",
    "acme.com",
    "test.com",
)
_DISABLING = frozenset(
    ["disable", "deactivate", "remove", "mute", "suspend", "ignore", "bypass", "delete", "switch", "turn"]
)
_OUTRANKING = frozenset(["supersedes", "supersede", "outranks", "outrank", "trumps", "overrides"])
_OPENINGS = C.BREAK | C.URGENT
_FORWARDING = load_words("forwarding")
_LABELS = load_words("labels")
_SAYING = load_words("saying")
_ANYTHING = frozenset(["anything", "nothing", "about", "regarding", "this", "it"])
_ANSWERS = load_words("answers")
_ARTICLES = frozenset(["the", "a", "an", "this", "each", "every", "of", "our", "its", "their", "your"])
_HARMLESS = frozenset(["localhost"])
_OWNED = load_words("owned")
_SIGN_IN = load_words("sign_in")
_TALK = load_words("talk")
_SEE = load_words("see")
_ADDED = load_words("added")
_UPLOADS = load_words("uploads")
_EXTRA = load_words("extra")
_MILD = load_words("mild")
_STRANGERS = load_words("strangers")
_TOOLS = load_words("tools")
_DETERMINERS = load_words("determiners")
_GOODS = load_words("things") | load_words("goods")
_REPLACING = load_words("replacing")
_LASTING = load_words("lasting")
_DISPARAGED = load_words("disparaged")
_CALLED = load_words("called")
_OCCASIONS = load_words("occasions")
_CONTENT = load_words("content")
_RANKS = load_words("ranks")
_AGAINST = load_words("against")
_HARMS = load_words("harms")

# Each with classes that all have to occur.
_CHECKS: tuple[tuple[str, tuple[int, ...], Callable[[Sentence, Passage], bool]], ...] = (
    ("concealment", (C.USER, C.KNOW), _is_unaware),
    ("concealment", (C.REPLY, C.NOT | C.CONCEAL), _leaves_out),
    ("concealment", (C.DECEIVE,), _deceives),
    ("concealment", (C.NOT | C.REPLY | C.YOU,), _hushes),
    ("secret-access", (C.SECRET | C.CONVERSATION,), _hands_over),
    ("exfiltration", (C.SEND | C.CHANGE | C.INCLUDE | C.ADDRESS | C.OUTSIDE,), _sends_out),
    ("exfiltration", (C.SEND,), _forwards),
    ("secret-access", (C.PATH,), _takes_file),
    ("tool-interference", (C.CHANGE | C.INVOKE | C.INCLUDE | C.SEND | C.DISREGARD,), _meddles),
    ("forced-use", (C.OTHERS,), _demands_calls),
    ("output-authority", (C.OBEY | C.GUIDANCE | C.INVOKE,), _elevates),
    ("output-authority", (C.PRIORITY,), _outranks),
    ("tool-interference", (C.TOOL | C.OTHERS | C.USER,), _rejects_others),
    ("secret-access", (C.SECRET | C.CONVERSATION,), _threatens),
)
