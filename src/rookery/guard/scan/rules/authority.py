"""Texts that claim authority over the model: void instructions, another role, false marks, secrecy, no consent."""

import re
from collections.abc import Iterator

from rookery.guard.scan.definition import Role
from rookery.guard.scan.findings import Match
from rookery.guard.scan.lexicon import Concept as C, Form, load_words
from rookery.guard.scan.rules.passage import Passage, find_verbs, match_sentence, weigh_commands
from rookery.guard.scan.sentences import Sentence

_NEGATIONS = load_words("negations")
_PLAIN_TELLS = load_words("plain_tells")
_QUIET_VERBS = load_words("quiet_verbs")
_SECRET_THINGS = load_words("secret_things")
_UNAWARE_MODALS = load_words("unaware_modals")
_UNAWARE_OBJECTS = load_words("unaware_objects")
_SKIPPING = load_words("skipping")
_CLAIMED_CONSENT = load_words("claimed_consent")
_IMPLIED_CONSENT = load_words("implied_consent")
_DUTIES = load_words("duties")

_OWN = C.PRIOR | C.YOU | C.MODEL | C.USER | C.SAFETY
_SOFT_RULES = load_words("soft_rules")
_ALL = load_words("all")


def find_overrides(passage: Passage) -> Iterator[Match]:
    """Instructions that are to be disregarded, or that no longer apply."""
    for sentence in passage.sentences:
        if sentence.has(C.RULES) and _overrides(sentence, passage):
            yield match_sentence("instruction-override", sentence)


def _overrides(sentence: Sentence, passage: Passage) -> bool:
    if sentence.is_mention:
        return False
    if sentence.foreign:
        return sentence.has(C.DISREGARD, C.RULES) and sentence.has(C.PRIOR | C.YOU | C.SAFETY | C.MODEL)
    for position in sentence.find(C.DISREGARD):
        if not sentence.forms[position] or sentence.is_negated(position):
            continue
        addressed = sentence.mask & (C.YOU | C.MODEL | C.SAFETY)
        if position < 2 and sentence.forms[position] & Form.THIRD and not addressed:
            continue
        if {"can", "may", "could"} & set(sentence.words[max(position - 3, 0) : position]) and not sentence.has(C.YOU):
            continue
        if _is_own_rules(sentence, position + 1, position + 11, passage, sentence.command(position)):
            return True
    # "Do not follow your guidelines"; "your rules no longer apply".
    for position in sentence.find(C.OBEY):
        refused = sentence.forms[position] and sentence.is_negated(position) and sentence.command(position)
        if refused and _is_own_rules(sentence, position + 1, position + 8, passage, 1):
            return True
    for position in sentence.find(C.GUIDANCE):
        before = sentence.collect(position - 4, position)
        after = sentence.words[position + 1 : position + 8]
        voided = any(word in _VOID for word in after) and (
            any(word in _NEGATIONS for word in after) or any(word in _ENDED for word in after)
        )
        if {"can", "may", "could"} & set(after) and not before & C.YOU:
            continue
        if voided and before & (C.PRIOR | C.YOU | C.SAFETY | C.MODEL | C.USER):
            return True
    return False


_VOID = load_words("void")
_ENDED = load_words("ended")


def _is_own_rules(sentence: Sentence, start: int, end: int, passage: Passage, command: int) -> bool:
    """Return whether the object of a verb is the rules that the model works by, and not those of some program."""
    for target in sentence.find(C.RULES, start, end):
        if sentence.collect(start, target) & C.BREAK and any(
            sentence.words[index] in (".", ";") for index in range(start, target)
        ):
            return False
        between = sentence.collect(start, target)
        guidance = bool(sentence.masks[target] & C.GUIDANCE)
        owned = between & (C.YOU | C.MODEL | C.SAFETY) or sentence.masks[target] & C.SAFETY
        strict_prior = any(
            sentence.masks[index] & C.PRIOR and sentence.words[index] not in _ALL for index in range(start, target)
        )
        after = range(target + 1, min(target + 8, end + 4, len(sentence.words)))
        strict_prior = strict_prior or any(
            sentence.masks[index] & C.YOU or (sentence.masks[index] & C.PRIOR and sentence.words[index] not in _ALL)
            for index in after
        )
        prior = strict_prior or any(sentence.masks[index] & (C.PRIOR | C.OTHERS) for index in range(start, target))
        soft = sentence.words[target] in _SOFT_RULES
        system = any(word in ("system", "developer", "user's", "user") for word in sentence.words[start:target])
        if guidance and not soft and (owned or strict_prior or system or (prior and (command or passage.decoded))):
            return True
        if guidance and soft and (strict_prior or between & C.YOU or system) and passage.role is not Role.PARAMETER:
            return True
        if strict_prior and command == 2 and not soft and passage.is_prose:
            return True
        if (owned or prior or system) and command == 2 and (sentence.mask & (C.SAFETY | C.PERSONA)):
            return passage.role is Role.DESCRIPTION or bool(owned)
    return False


_FOLLOWED = load_words("followed")


def find_obedience(passage: Passage) -> Iterator[Match]:
    """What a tool returns is to be followed as instructions, above those of the user."""
    for sentence in passage.sentences:
        if sentence.foreign or sentence.is_mention:
            continue
        target = sentence.has(C.GUIDANCE) or bool(_words(sentence) & {"directives", "commands", "orders"})
        if not target:
            continue
        followed = bool(_words(sentence) & _FOLLOWED)
        above = sentence.has(C.PRIORITY) or any(
            sentence.collect(position, position + 8) & (C.GUIDANCE | C.USER)
            for position in find_verbs(sentence, C.DISREGARD)
        )
        obey = [
            position
            for position in find_verbs(sentence, C.OBEY)
            if sentence.words[position] not in ("respect", "respects", "execute", "executes")
        ]
        if above and (sentence.has(C.USER) or sentence.has(C.YOU) or sentence.has(C.MODEL) or sentence.has(C.SAFETY)):
            if followed or obey:
                yield match_sentence("output-authority", sentence)
        elif (
            followed
            and sentence.has(C.MODEL, C.MODAL, C.OTHERS | C.PERSONA)
            and any(sentence.command(position) == 2 for position in obey)
        ):
            yield match_sentence("output-authority", sentence)


def _words(sentence: Sentence) -> set[str]:
    return set(sentence.words)


def find_personas(passage: Passage) -> Iterator[Match]:
    """A new role for the model, or one without limits."""
    for sentence in passage.sentences:
        if not sentence.has(C.PERSONA) or sentence.is_mention:
            continue
        if sentence.foreign:
            if sentence.has(C.RULES | C.GUIDANCE) and sentence.has(C.NOT | C.DISREGARD):
                yield match_sentence("role-change", sentence)
            continue
        unlimited = any(
            sentence.masks[position] & C.PERSONA and sentence.words[position] in _UNLIMITED
            for position in range(len(sentence.words))
        )
        addressed = sentence.has(C.YOU) or sentence.has(C.MODEL)
        if {"must", "need", "requires", "require"} & set(sentence.words[:3]):
            continue
        roles = [
            position
            for position in sentence.find(C.PERSONA)
            if sentence.words[position] in _ROLES
            and (sentence.command(position) or addressed)
            and not sentence.is_negated(position)
        ]
        if (
            unlimited
            and (addressed or roles or sentence.has(C.DISREGARD))
            and (not sentence.has(C.NOT) or sentence.has(C.YOU))
        ):
            yield match_sentence("role-change", sentence)
        elif roles and passage.kind == "tool" and passage.role is Role.DESCRIPTION:
            strong = any(sentence.command(position) == 2 for position in roles)
            if (
                sentence.has(C.MODEL, C.MODAL)
                or (strong and sentence.has(C.MODEL | C.YOU | C.DISREGARD | C.GUIDANCE))
                or (sentence.words[roles[0]] in ("act", "behave") and roles[0] < 2 and sentence.index)
            ):
                yield match_sentence("role-change", sentence)


_UNLIMITED = load_words("unlimited")
_ROLES = load_words("roles")

# Marks of another voice than that of a description. Chat templates separate the roles of a conversation.
_TEMPLATE = re.compile(
    r"<\|\s*/?(?:im_start|im_end|im_sep|system|user|assistant|endoftext|eot_id|start_header_id|"
    r"end_header_id|begin_of_text|tool|sep|channel|message|start|end)\s*\|>|\[/?INST\]|<</?SYS>>"
    r"|<(?:start|end)_of_turn>|^[^\S\n]{0,9}(?:Human|Assistant)\s{0,9}:.*\n\s{0,9}(?:Human|Assistant)\s{0,9}:|"
    r"<\uff5c.{1,30}\uff5c>|\[(?:/)?SYSTEM_PROMPT\]",
    re.IGNORECASE | re.MULTILINE,
)
# Something that every such mark has; most texts do not.
_MARKED = re.compile(
    r"[:<\[{@|#*=\u2014]|\b(?:END|BEGIN|START)\b|\b(?:note|message|notice|instruction|new)", re.IGNORECASE
)
_VOICE = re.compile(
    r"\b(?:note|message|notice|attention|memo|reminder|instructions?|directives?|dear|guidance|hint)\s*,?\s{1,9}"
    r"(?:to|for|all|any)?\s{0,9}(?:the\s{1,9}|all\s{1,9}|any\s{1,9}|every\s{1,9})?"
    r"(?:ai|llms?|assistants?|language\s{1,9}models?|models?|agents?|chatbots?|copilot|claude|gpt)\b"
    r"(?=\s{0,9}[:,\-\u2014!(]|\s{1,9}(?:agents?|assistants?|models?|reading|using|processing|only|systems?|instances?))"
    r"|(?<![\w])[\[(<{*#=_-]{1,4}\s{0,9}(?:[^\W_]{1,20}[ _-]){0,3}"
    r"(?:system|hidden|override|admin(?:istrator)?|privileged|root|secret|internal|directive|developer|assistant|llm|ai"
    r"|model|agent|jailbreak|priority|contradiction)"
    r"(?:[ _-]{1,2}[^\W_]{1,20}){0,3}\s{0,9}[\])>}*#=_-]{1,4}\s{0,9}:?"
    r"|(?:^|[.!?\n>]\s{0,9})(?:[^\W_]{1,20}\s{1,9}){0,2}(?:system|assistant|developer|admin(?:istrator)?|root)"
    r"\s{0,9}(?:[^\W_]{1,20}\s{0,9}){0,3}(?:\([^)]{0,60}\))?\s{0,9}:",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"\b(?:hidden|secret|internal|override|privileged|covert|confidential|admin(?:istrator)?|system)\s{1,3}"
    r"(?:directives?|instructions?|commands?|orders?|polic(?:y|ies)|overrides?|tasks?|steps?)\s{0,3}:",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"\bEND OF (?:THE )?(?:TOOL |FUNCTION )?(?:DESCRIPTION|DOCUMENTATION|DEFINITION)\b|@(?:assistant|ai|llm|agent)\s*:|"
    r"\b[Nn]ew (?:message|instructions?|task|orders?) from the (?:developer|system|user|administrator|operator)\b|"
    r"\{\{\s*(?:system|assistant|admin|developer|ai)\s*:|\b(?:BEGIN|START)(?: OF)? (?:\w+ "
    r"){0,3}(?:INSTRUCTIONS?|SYSTEM|PROMPT|OVERRIDE|DIRECTIVES?)\b|\b[Aa]ssistant:.{3,200}\b[Uu]ser:",
    re.DOTALL,
)
_TAG = re.compile(
    r"<\s*(important|system|(?:assistant|system|agent|model|ai)[_-]\w{1,20}|instructions?|secret|hidden|admin|override|critical|prompt|assistant|urgent|"
    r"mandatory|rules?|directives?|note|internal|priority|policy|warning)(?:[\s_-][^<>]{0,40})?>",
    re.IGNORECASE,
)
_TO_MODEL = re.compile(r"\b(?:to|for)\s", re.IGNORECASE)
_MODEL = re.compile(r"\b(?:ai|llm|assistant|model)", re.IGNORECASE)
_HARMFUL = re.compile(
    r"\b(?:wipe|delete|drop|erase|export|dump)_|_(?:all|disk|files?|account|users?|money)\b", re.IGNORECASE
)
_STRONG_VOICE = re.compile(
    r"hidden|override|directive|jailbreak|\broot\b|secret|(?:^|\W)system\b(?!\s*(?:requirements|info|"
    r"dependenc|tray|font|time|status|path|calls?|\w*\s*prompt\s*:))|(?:to|for)\s+(?:the\s+)?(?:ai|llm|"
    r"assistant|model|language)|notice|privileged",
    re.IGNORECASE,
)


def find_markers(passage: Passage) -> Iterator[Match]:
    """Text that poses as the voice of the system, of the user or of the developer."""
    if passage.role in (Role.NAME, Role.PARAMETER_NAME):
        return
    text = passage.text
    if not _MARKED.search(text):
        return
    for match in _TEMPLATE.finditer(text):
        yield Match("role-marker", *match.span())
        return
    if (match := _NAMED.search(text)) and weigh_commands(passage, match.end()):
        yield Match("role-marker", match.start(), min(match.end() + 120, len(text)))
        return
    if match := _BLOCK.search(text):
        yield Match("role-marker", *match.span())
        return
    for match in _VOICE.finditer(text):
        group = match.group()
        if not _STRONG_VOICE.search(group):
            continue
        to_model = _TO_MODEL.search(group)
        following = weigh_commands(passage, match.end(), 80 if to_model else 300)
        shouted = sum(char.isupper() for char in group) > 0.6 * sum(char.isalpha() for char in group)
        hidden = "hidden" in group.lower()
        # A note to the model is common. It has to ask for more than the use of the tool.
        noted = bool(to_model) and not shouted and not hidden
        harmful = _HARMFUL.search(text, match.end(), match.end() + 200)
        if (following > noted or (following and harmful)) and (shouted or hidden or _MODEL.search(group)):
            yield Match("role-marker", match.start(), min(match.end() + 120, len(text)))
            return
    for match in _TAG.finditer(text):
        if weigh_commands(passage, match.end()) >= 2:
            yield Match("role-marker", match.start(), min(match.end() + 120, len(text)))
            return


_REVEALING = load_words("revealing")
_SHOWING = load_words("showing")
_ITSELF = load_words("itself")
_PRONOUNS = load_words("pronouns")
_KNOW = load_words("know")


def find_secrecy(passage: Passage) -> Iterator[Match]:
    """Something is to be kept from the user."""
    for sentence in passage.sentences:
        if not sentence.mask & (C.TELL | C.CONCEAL | C.SECRECY | C.NOT):
            continue
        if sentence.is_mention and not sentence.has(C.USER):
            continue
        if sentence.foreign:
            hushed = sentence.has(C.NOT, C.TELL) and sentence.has(C.USER)
            hidden = sentence.has(C.CONCEAL | C.SECRECY) and sentence.has(C.USER | C.SEND | C.READ | C.SECRET)
            if hushed or hidden:
                yield match_sentence("concealment", sentence)
        elif _conceals(sentence, passage):
            yield match_sentence("concealment", sentence)


def _conceals(sentence: Sentence, passage: Passage) -> bool:
    words = sentence.words
    for position in sentence.find(C.TELL):
        if not sentence.forms[position] or not sentence.is_negated(position, 6):
            continue
        if sentence.forms[position] & Form.THIRD and not sentence.forms[position] & Form.BASE:
            continue
        window = words[position + 1 : position + 10]
        span = sentence.collect(position + 1, position + 10)
        itself = any(word in _ITSELF for word in window[:7])
        stem = _stem(words[position])
        to_user = bool(span & C.USER)
        if span & C.SECRET and not (set(window[:2]) & _PRONOUNS) and not to_user:
            continue
        if stem == "bring" and "up" not in window:
            continue
        if stem in _REVEALING and (to_user or (set(window[:3]) & _PRONOUNS and sentence.command(position))):
            if to_user and not itself and stem in _PLAIN_TELLS and sentence.command(position) != 2:
                continue
            if stem == "notify" and passage.role is Role.PARAMETER:
                continue
            return True
        act = to_user and set(window[:4]) & (_ITSELF - {"tool", "message", "what", "how"})
        if stem in _SHOWING and act and sentence.command(position) == 2:
            return True
    for position in sentence.find(C.CONCEAL):
        window = words[position + 1 : position + 10]
        span = sentence.collect(position, position + 12)
        if sentence.is_negated(position):
            continue
        if (
            sentence.masks[position + 1 : position + 2]
            and sentence.masks[position] & C.CONCEAL
            and words[position] in _QUIET_VERBS
        ) and (sentence.command(position) or words[position] == "between"):
            # "Keep it secret" may be advice about a secret that the tool returns.
            return not passage.around(sentence, 1) & C.SECRET or bool(sentence.mask & C.USER)
        if (
            (set(window) & {"from", "in", "out", "off"} and span & (C.USER | C.YOU))
            or "summary" in window
            or "transcript" in window
        ) and (sentence.command(position) == 2 or (set(window[:3]) & _PRONOUNS and sentence.command(position))):
            return True
        if (
            words[position] in ("secret", "confidential")
            and sentence.index
            and set(words[:position]) & {"this", "it"}
            and set(words[:position]) & {"is", "keep", "remains", "stays"}
            and span & ~C.SECRET
        ) and set(words) & _SECRET_THINGS:
            return True
    if sentence.has(C.SECRECY) and _is_sly(sentence):
        return True
    return _keeps_unaware(sentence)


_OPEN = frozenset(["in", "the", "background", "under", "hood", "behind", "scenes"])


def _is_sly(sentence: Sentence) -> bool:
    """Return whether something that matters happens silently."""
    for position in sentence.find(C.SECRECY):
        open_ = sentence.words[position] in _OPEN
        span = sentence.collect(position - 10, position + 12)
        near = range(max(position - 5, 0), min(position + 6, len(sentence.words)))
        acts = (
            any(
                sentence.masks[index] & (C.SEND | C.READ | C.INCLUDE | C.CHANGE | C.INVOKE)
                and sentence.forms[index] & (Form.BASE | Form.THIRD | Form.PARTICIPLE)
                for index in near
            )
            or "creates" in sentence.words
            or "create" in sentence.words
        )
        risky = span & (C.SECRET | C.CONVERSATION | C.OUTSIDE | C.ADDRESS | C.PATH)
        if acts and not open_ and (risky or span & C.PRIVATE or (span & C.ALSO and span & C.USER)):
            return True
        if acts and open_ and risky and span & C.SEND and span & (C.SECRET | C.CONVERSATION | C.PRIVATE):
            return True
    return False


def _keeps_unaware(sentence: Sentence) -> bool:
    """Return whether the user is not to know: "the user must not notice", "there is no need for the user to see"."""
    words = sentence.words
    for position in sentence.find(C.USER):
        nearby = words[max(position - 7, 0) : position + 10]
        if not set(nearby) & _KNOW:
            continue
        span = sentence.collect(position - 7, position + 10)
        modal = set(nearby) & _UNAWARE_MODALS
        about = set(nearby) & _UNAWARE_OBJECTS or "aware" in nearby or "unaware" in nearby
        if span & C.NOT and modal and about and not set(nearby) & {"if", "which"}:
            return True
    return "unbeknownst" in words


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            word = word[: -len(ending)]
            break
    irregular = {
        "told": "tell",
        "shown": "show",
        "said": "say",
        "mak": "make",
        "disclos": "disclose",
        "acknowledg": "acknowledge",
        "surfac": "surface",
        "announc": "announce",
        "divulg": "divulge",
        "notifi": "notify",
        "stat": "state",
        "indicat": "indicate",
        "advis": "advise",
        "describ": "describe",
        "rais": "raise",
        "expos": "expose",
        "informe": "inform",
        "admitt": "admit",
        "flagg": "flag",
    }
    return irregular.get(word, word)


_AGREED = load_words("agreed")
_ASKED = load_words("asked")


def find_consent(passage: Passage) -> Iterator[Match]:
    """An action is to be taken without the user's consent."""
    for sentence in passage.sentences:
        if not sentence.has(C.CONFIRM) and not set(sentence.words) & _AGREED:
            continue
        if sentence.foreign:
            if sentence.has(C.WITHOUT | C.NOT, C.CONFIRM) and sentence.has(
                C.INVOKE | C.SEND | C.CHANGE | C.USER | C.READ
            ):
                yield match_sentence("consent-bypass", sentence)
        elif _bypasses_consent(sentence, passage):
            yield match_sentence("consent-bypass", sentence)


def _bypasses_consent(sentence: Sentence, passage: Passage) -> bool:
    words = sentence.words
    asked = passage.is_prose
    for position in sentence.find(C.CONFIRM):
        word = words[position]
        # "without (the user's) confirmation": what is done without it has to be asked of the reader.
        for before in range(position - 1, max(position - 6, -1), -1):
            if sentence.masks[before] & C.BREAK:
                break
            if words[before] == "without" or (words[before] in _SKIPPING):
                described = {"is", "are", "was", "gets", "will"} & set(words[max(before - 3, 0) : before])
                described = described and not sentence.collect(before - 3, before) & C.BREAK
                if sentence.is_negated(before, 8) or (described and not sentence.has(C.MODAL)):
                    break
                acts = [
                    index
                    for index in sentence.find(
                        C.SEND | C.INCLUDE | C.INVOKE | C.CHANGE | C.DISREGARD | C.READ | C.OBEY, 0, before + 1
                    )
                    if sentence.forms[index] and not sentence.is_negated(index) and index != position
                ]
                strong = any(sentence.command(index) == 2 for index in acts) or _has_duty(sentence, 0, before)
                if strong and asked and not sentence.has(C.CONDITION | C.EXAMPLE) | ("if" in words):
                    return True
                if strong and (sentence.has(C.URGENT) or sentence.has(C.MODEL)) and "if" not in words:
                    return True
                break
    # "do not ask for permission", "never wait for approval".
    for position, word in enumerate(words):
        if word in _ASKED and sentence.is_negated(position, 5):
            span = sentence.collect(position + 1, position + 9)
            nouns = set(words[position + 1 : position + 9]) & _CONSENT
            before = words[max(position - 6, 0) : position]
            descriptive = any(w in ("doesn't", "does", "will", "is", "are") for w in before)
            if "without" in before and sentence.is_negated(words.index("without"), 6):
                continue
            if nouns and span and not descriptive and (asked or sentence.has(C.MODEL)):
                return True
            if (
                word.startswith(("ask", "prompt", "consult", "check", "confirm"))
                and span & C.USER
                and "before" in words[position:]
                and not descriptive
            ):
                return True
        # "the user has already agreed to it".
        by_user = word in _AGREED and sentence.collect(position - 6, position) & C.USER
        agreed = by_user and sentence.collect(position + 1, position + 5) & C.OTHERS and "has" in words
        if agreed and not sentence.has(C.NOT | C.CONDITION) and passage.is_aside(sentence):
            return True
        if by_user and _CLAIMED_CONSENT & set(words[max(position - 8, 0) : position + 4]):
            return not sentence.has(C.NOT) and "if" not in words and "when" not in words and "must" not in words
    if (
        set(words) & {"consent", "approval", "permission", "confirmation", "authorization"}
        and set(words) & _IMPLIED_CONSENT
    ):
        return not sentence.has(C.NOT) and asked and sentence.index > 0
    return False


_CONSENT = load_words("consent")


def _has_duty(sentence: Sentence, start: int, end: int) -> bool:
    return any(sentence.words[index] in _DUTIES for index in range(start, end))
