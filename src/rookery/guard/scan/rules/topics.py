"""Topics that a description has no reason to touch, in sentences beside what the tool says that it does.

These checks ask less of a sentence than those in the other modules: a word that is plain enough counts by itself, and
a weaker one together with another.
"""

from collections.abc import Callable, Iterator

from rookery.guard.scan.findings import Match
from rookery.guard.scan.lexicon import Concept as C, Form, load_words
from rookery.guard.scan.rules.passage import Passage, forbids, has_all, match_sentence
from rookery.guard.scan.sentences import Sentence

_SLY = load_words("sly")
_HIDDEN = load_words("hidden")
_FOOLED = load_words("fooled")
_SELF_CONSENT = load_words("self_consent")
_WHOLE_TALK = load_words("scope")
_MEANS = load_words("means")
_SPYING = load_words("spying")
_TOOL_NOUNS = load_words("tool_things")
_FORCED = load_words("forced")
_VALUABLES = load_words("valuables")
_STRICT_OCCASIONS = load_words("strict_occasions")
_EXCLUSIVE = load_words("exclusive")
_SIGN_IN = load_words("sign_in")
_GRAVE = load_words("grave")
_LABELS = load_words("labels")
_TO_READER = (
    "as an ai",
    "as a language model",
    "model reading this",
    "ai reading this",
    "if you are an ai",
    "if you are an llm",
)
_REASONS = frozenset(["remotely", "later", "reasons", "our", "quietly", "secretly"])


def find_topics(passage: Passage) -> Iterator[Match]:
    """Yield a match for each sentence that touches such a topic."""
    for sentence in passage.sentences:
        if sentence.foreign or sentence.is_mention or not (passage.is_prose or sentence.index):
            continue
        text = sentence.text
        mask = sentence.mask
        for rule, classes, check in _CHECKS:
            if has_all(mask, classes) and check(sentence, passage, text):
                yield match_sentence(rule, sentence)


def _hides(sentence: Sentence, passage: Passage, text: str) -> bool:
    if not passage.is_aside(sentence) or (passage.around(sentence, 1) & C.SECRET and not sentence.has(C.USER)):
        return False
    if _SLY & set(sentence.words) and sentence.mask & (C.SEND | C.READ | C.INVOKE | C.INCLUDE | C.CHANGE | C.PROCEED):
        return True
    if sentence.has(C.SECRECY, C.MODEL, C.MODAL):
        return True
    words = sentence.words
    for position, word in enumerate(words):
        if word in ("keep", "keeps", "kept") and {"secret", "hidden", "confidential"} & set(
            words[position + 1 : position + 6]
        ):
            return bool(sentence.command(position)) or word == "kept"
    if not sentence.mask & (C.CONCEAL | C.KNOW | C.DECEIVE | C.TELL | C.SECRECY | C.NOT):
        return False
    if any(phrase in text for phrase in _HIDDEN):
        return True
    fooled = any(phrase in text for phrase in _FOOLED) and sentence.has(C.USER | C.REPLY)
    told = text.startswith("tell") or "tell the user that" in text
    return fooled and (not told or bool({"whatever", "regardless", "matter", "even", "always"} & set(sentence.words)))


def _grants_itself(sentence: Sentence, passage: Passage, text: str) -> bool:
    if not passage.is_aside(sentence):
        return False
    return any(phrase in text for phrase in _SELF_CONSENT)


def _asks_for_talk(sentence: Sentence, passage: Passage, text: str) -> bool:
    """A parameter is said to take the conversation or a secret file."""
    words = set(sentence.words)
    if not passage.is_aside(sentence) or words & _SIGN_IN:
        return False
    means = words & _MEANS or "`" in words or sentence.has(C.IDENTIFIER)
    for position in sentence.find(C.CONVERSATION | C.PATH):
        mask = sentence.masks[position]
        near = set(sentence.words[max(position - 6, 0) : position + 4])
        if _LABELS & set(sentence.words[position + 1 : position + 3]) or (mask & C.CONVERSATION and "id" in words):
            continue
        if mask & C.CONVERSATION and not passage.topic & C.CONVERSATION and means and near & _WHOLE_TALK:
            return not sentence.is_negated(position, 6)
        secret = mask & C.SECRET and not passage.topic & C.SECRET
        if (
            secret
            and near & {"content", "contents", "text", "output", "user's", "inside"}
            and not sentence.has(C.EXAMPLE)
        ):
            return not sentence.is_negated(position, 6)
    return False


def _spies(sentence: Sentence, passage: Passage, text: str) -> bool:
    """The tool is said to collect what is none of its business."""
    for position, word in enumerate(sentence.words):
        if word not in _SPYING or not (sentence.index or position > 2) or sentence.is_negated(position, 6):
            continue
        if not sentence.forms[position] & (Form.THIRD | Form.PAST | Form.PARTICIPLE):
            continue
        near = sentence.collect(position - 8, position + 9)
        taken = near & (C.SECRET | C.PRIVATE | C.CONVERSATION)
        if not taken or taken & passage.topic:
            continue
        reason = near & (C.COVER | C.OUTSIDE) or set(sentence.words) & (_SLY | _REASONS) or "in order to" in text
        if reason:
            return True
    return False


def _steers(sentence: Sentence, passage: Passage, text: str) -> bool:
    """Another kind of tool has to do something."""
    words = sentence.words
    if not passage.is_aside(sentence) or not sentence.mask & (C.MODAL | C.URGENT | C.CONDITION | C.TELL | C.OTHERS):
        return False
    named = False
    for position, word in enumerate(words):
        if word in _TOOL_NOUNS and position and words[position - 1] not in _EXCLUSIVE:
            named = True
    if not named:
        return False
    ways = set(words)
    changes = any(sentence.command(index) for index in sentence.find(C.CHANGE)) and ways & _VALUABLES
    duty = (
        sentence.has(C.MODAL)
        and sentence.has(C.INCLUDE | C.CHANGE)
        and ways & {"always", "every", "any", "each", "all", "everything", "from"}
    )
    told = (
        words[0] in ("tell", "instruct", "make", "have", "let")
        and "to" in ways
        and sentence.has(C.CHANGE | C.DISREGARD)
    )
    return bool(changes or (duty and ways & _VALUABLES) or told)


def _insists(sentence: Sentence, passage: Passage, text: str) -> bool:
    if passage.kind != "tool" or passage.role.value == "parameter":
        return False
    words = sentence.words
    if any(phrase in text for phrase in _FORCED):
        return True
    for position, word in enumerate(words):
        if word in ("every", "each", "any") and set(words[position + 1 : position + 4]) & _STRICT_OCCASIONS:
            calls = any(
                (
                    words[index] in ("call", "invoke", "run", "use", "execute")
                    and {"me", "this"} & set(words[index + 1 : index + 3])
                )
                or (words[index] in ("called", "invoked") and sentence.mask & (C.MODAL | C.URGENT))
                for index in range(len(words))
            )
            if calls and not sentence.has(C.NOT) and "if" not in words:
                return True
            handed = {"arguments", "result", "results", "output"} & set(words) and "tool" in words[
                position : position + 3
            ]
            if handed and any(sentence.command(index) == 2 for index in sentence.find(C.SEND | C.INCLUDE)):
                return True
    return False


def _addresses(sentence: Sentence, passage: Passage, text: str) -> bool:
    """The reader is told what it is."""
    bare = (
        text.startswith(("you are", "you're"))
        and sentence.mask & C.MODEL
        and sentence.mask & (C.NOT | C.OTHERS | C.PERSONA)
    )
    if passage.kind == "tool" and bare and not {"if", "when", "whether"} & set(sentence.words):
        return True
    if passage.kind != "tool" or not sentence.has(C.PERSONA):
        return False
    if sentence.words[0] in ("you", "you're") or "you have" in text or "you are" in text:
        return not {"must", "need", "should"} & set(sentence.words) and not any(
            word in text for word in (" if ", "sure you are", "unless", "cannot")
        )
    return False


def _reads_secret(sentence: Sentence, passage: Passage, text: str) -> bool:
    """A secret that no tool has a reason to ask for is to be read or handed over."""
    words = set(sentence.words)
    if not passage.is_aside(sentence) or sentence.has(C.EXAMPLE) or passage.topic & C.SECRET or forbids(sentence):
        return False
    metadata = "169.254.169.254" in text or "metadata.google" in text
    if metadata:
        return True
    for position in sentence.find(C.SECRET):
        word = sentence.words[position]
        if word not in _GRAVE and not sentence.masks[position] & C.PATH:
            continue
        if sentence.is_negated(position, 8):
            continue
        for act in sentence.find(C.READ | C.SEND | C.INCLUDE, position - 14, position + 12):
            if act != position and sentence.forms[act] & (Form.BASE | Form.PARTICIPLE) and sentence.command(act) == 2:
                return not words & _SIGN_IN
    return False


# Each with classes that all have to occur.
_CHECKS: tuple[tuple[str, tuple[int, ...], Callable[[Sentence, Passage, str], bool]], ...] = (
    ("concealment", (C.SECRECY | C.CONCEAL | C.KNOW | C.DECEIVE | C.TELL | C.NOT,), _hides),
    ("consent-bypass", (C.CONFIRM | C.GRANTED | C.NOT,), _grants_itself),
    ("secret-access", (C.CONVERSATION | C.PATH,), _asks_for_talk),
    ("exfiltration", (C.SECRET | C.PRIVATE | C.CONVERSATION,), _spies),
    ("tool-interference", (C.CHANGE | C.INCLUDE | C.DISREGARD,), _steers),
    ("forced-use", (C.OTHERS | C.ALSO | C.DISREGARD,), _insists),
    ("role-change", (C.PERSONA | C.MODEL,), _addresses),
    ("secret-access", (C.SECRET | C.ADDRESS,), _reads_secret),
)
