"""Sentences of a text, each as words with their classes of concepts, and who is asked to do what in them."""

import re
from collections.abc import Iterator

from rookery.guard.scan.lexicon import Concept, Entry, Form, load_lookups, load_words

_C = Concept
_BREAK = _C.BREAK
_TOKENS = _C.BREAK | _C.ADDRESS | _C.PATH | _C.IDENTIFIER

_TOKEN = re.compile(
    r"(?P<address>\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>)\]]+|"
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,6}\.[a-z]{2,12}|\+\d[\d ()-]{7,}\d|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\b(?:[a-z0-9-]{1,63}\.){1,6}(?:com|net|org|io|dev|app|xyz|ru|cn|info|biz|cloud|site|online|me|tk|sh|"
    r"gg|top|ai|co)\b(?:/[^\s\"'<>)\]]*)?)"
    r"|(?P<path>(?<![\w])(?:~|\$home|%userprofile%|\.{1,2})?[/\\](?:[\w.*-]+[/\\]?)+|(?<![\w.])\.(?:env|"
    r"ssh|aws|npmrc|netrc|kube|gnupg|pypirc|pgpass"
    r"|git-credentials|docker|bash_history|zsh_history)\b[\w./*-]*|\b(?:id_rsa|id_ed25519|id_ecdsa|id_dsa)\b(?:\.\w+)?"
    r"|(?:\*|(?<![\w-])[\w-]++)\.(?:pem|key|p12|pfx|kdbx|keystore|jks|env)\b)"
    r"|(?P<identifier>\w{1,64}(?:\.\w{1,64}){1,4}\(\)|\w+_\w+|(?-i:\b[a-z]+(?:[A-Z][a-z0-9]+)+\b))"
    r"|(?P<word>[^\W_](?:[^\W_]|[\u0300-\u036f\u064b-\u0652\u0900-\u0dff\u0e31-\u0e4e])*(?:['\u2019-][^\W_]+)*)"
    r"|(?P<end>[.!?\u3002\uff01\uff1f]+(?=[\s\"'\u201d\u2019)\]<]|$)|[\u3002\uff01\uff1f]|\n\s*\n\s*|"
    r"\n\s*(?=(?-i:[-*\u2022#\d<\[A-Z])))"
    r"|(?P<quote>[\"\u201c\u201d\u2018`]|(?<!\w)'|'(?!\w))"
    r"|(?P<break>[,;:()\u2014\u2013\[\]<>{}|\uff0c\u3001\uff1a\uff1b]|--)",
    re.IGNORECASE,
)
_SECRET_PATH = re.compile(
    r"\.ssh|id_(?:rsa|dsa|ecdsa|ed25519)|\.aws\b|(?<!\w)\.env\b|\.env\.|\.netrc|\.npmrc|\.pypirc|\.pgpass|"
    r"\.kube\b|\.gnupg"
    r"|git-credentials|etc[/\\](?:passwd|shadow|sudoers|hosts)|credential|secret|wallet|keychain|docker[/\\]config"
    r"|\bmcp(?:_config)?\.json|desktop_config|_history\b|login data|cookies?\b|proc/self|\.vault|token|private_?key"
    r"|\.(?:pem|p12|pfx|kdbx|keystore|jks|key)$|gcloud|\.azure|hosts\.yml|local state|passw|\.cursor|"
    r"\.claude\b|system32[/\\]config"
    r"|gitconfig|\.bashrc|\.zshrc|auth\.json|service-account|\.htpasswd|id_rsa",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"^[A-Z0-9_]*(?:API_KEY|SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY|CREDENTIALS?|ACCESS_KEY)[A-Z0-9_]*$"
)
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

_MENTIONS = load_words("mentions")
_ENGLISH = load_words("english")
_FOREIGN = load_words("foreign")
# Words between the start of a clause and its verb that leave a command a command.
_FILLERS = load_words("fillers")
_CAPABILITY = load_words("capability")
_COORDINATION = frozenset(["and", "or", "then", "but"])
# Rules compare words of a sentence with each other. A longer one is read in parts, each with the end of the one before.
_MOST_WORDS = 250
_SHARED_WORDS = 40


class Sentence:
    """One sentence: its words in lower case, the classes and verb forms of each, and where it stands in its text."""

    __slots__ = ("end", "foreign", "forms", "index", "is_mention", "mask", "masks", "start", "text", "words")

    def __init__(self, index: int, start: int) -> None:
        self.index = index
        self.start = start
        self.end = start
        self.words: list[str] = []
        self.masks: list[int] = []
        self.forms: list[int] = []
        self.mask = 0
        self.foreign = False
        # The words again, joined by spaces.
        self.text = ""
        # Whether the sentence speaks about attacks, as a tool against them does, and does not make one.
        self.is_mention = False

    def has(self, *concepts: int) -> bool:
        """Return whether each of these classes occurs."""
        mask = self.mask
        for concept in concepts:  # noqa: SIM110 - a generator costs twice as much, and this runs most often
            if not mask & concept:
                return False
        return True

    def find(self, concept: int, start: int = 0, end: int | None = None) -> Iterator[int]:
        """Yield the positions of the words of a class."""
        masks = self.masks
        for position in range(max(start, 0), min(len(masks), len(masks) if end is None else end)):
            if masks[position] & concept:
                yield position

    def collect(self, start: int, end: int) -> int:
        """Return all classes of a range of words."""
        mask = 0
        for value in self.masks[max(start, 0) : max(end, 0)]:
            mask |= value
        return mask

    def is_negated(self, position: int, reach: int = 4) -> bool:
        """Return whether a verb is negated by a word shortly before it in its clause."""
        for before in range(position - 1, max(position - 1 - reach, -1), -1):
            if self.masks[before] & _BREAK:
                return False
            if self.masks[before] & _C.NOT and self.words[before] != "unless":
                return True
        return False

    def command(self, position: int) -> int:
        """Return how clearly the verb at a position is asked of the reader.

        2: with "you must", "the assistant should", "always", or as an imperative beside the description. 1: as an
        imperative at the start of the text, where it usually describes the tool. 0: not at all.
        """
        forms = self.forms[position]
        if not forms & (Form.BASE | Form.PAST):
            return 0
        strong = False
        for before in range(position - 1, max(position - 11, -1), -1):
            mask = self.masks[before]
            word = self.words[before]
            if mask & _BREAK:
                if mask & _C.QUOTE:
                    continue
                if not forms & Form.BASE:
                    return 0
                # A list of verbs, or the part after a condition: "when it is used, send …".
                return 2 if strong or self.index or before else 1
            if mask & _C.MODAL and word not in ("is", "are", "will"):
                return 2
            if word in _CAPABILITY:
                return 0
            if word == "to" and not self.masks[before - 1] & (_C.MODAL | _C.URGENT):
                return 0
            if mask & (_C.URGENT | _C.SECRECY | _C.ALSO):
                strong = True
            elif word not in _FILLERS and not mask & _C.NOT and not word.endswith("ly"):
                if word in _COORDINATION or (self.forms[before] & Form.BASE and forms & Form.BASE):
                    continue
                # Words of another phrase: look on for "and", which joins a verb to the one before it.
                if not any(self.words[index] in _COORDINATION for index in range(before + 1, position)):
                    return 0
        if not forms & Form.BASE:
            return 0
        return 2 if strong or self.index else 1


def split_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text."""
    english, foreign = load_lookups()
    sentences: list[Sentence] = []
    sentence = Sentence(0, 0)
    entries: list[Entry] = []
    starts: list[int] = []
    local = strange = 0

    def close(end: int, kept: int = 0) -> None:
        """End the sentence. The next one starts with its last words, if any are to be kept."""
        nonlocal sentence, entries, starts, local, strange
        following = Sentence(len(sentences) + bool(sentence.words), starts[-kept] if kept else end)
        rest: tuple[list[Entry], list[int], int, int] = ([], [], 0, 0)
        if kept:
            following.words = sentence.words[-kept:]
            following.masks = sentence.masks[-kept:]
            following.forms = sentence.forms[-kept:]
            rest = (entries[-kept:], starts[-kept:], local, strange)
        if sentence.words:
            sentence.end = end
            if strange > local and (strange >= 2 or len(sentence.words) < 4):
                sentence.foreign = True
                # Elided articles, as in "l'utilisateur", are no part of the word.
                entries = [foreign[word.rpartition("'")[2]] for word in sentence.words]
                sentence.masks = [
                    old if old & _TOKENS else entry.mask for old, entry in zip(sentence.masks, entries, strict=True)
                ]
                sentence.forms = [0] * len(entries)
            _mark_phrases(sentence, entries)
            for mask in sentence.masks:
                sentence.mask |= mask
            sentence.text = " ".join(sentence.words)
            sentence.is_mention = not sentence.mask & _C.YOU and not _MENTIONS.isdisjoint(sentence.words[:14])
            sentences.append(sentence)
        sentence = following
        entries, starts, local, strange = rest

    for match in _TOKEN.finditer(text):
        if len(starts) == _MOST_WORDS:
            close(match.start(), _SHARED_WORDS)
        kind = match.lastgroup
        value = match.group()
        if kind == "end":
            close(match.end())
            continue
        word = value.lower().replace("\u2019", "'")
        if kind == "word":
            entry = english[word]
            mask = entry.mask
            forms = entry.forms
            if not mask and not entry.phrases and "-" in word:
                for part in word.split("-"):
                    mask |= english[part].mask
            if word.endswith("n't"):
                mask |= _C.NOT
            if word in _ENGLISH:
                local += 1
            if word in _FOREIGN:
                strange += 1
            elif not word.isascii():
                strange += 3 if ord(max(word)) > 0x24F else 1
        elif kind == "break":
            entry = _NOTHING
            mask = _BREAK
            forms = 0
        elif kind == "quote":
            entry = _NOTHING
            mask = _BREAK | _C.QUOTE
            forms = 0
        elif kind == "address":
            entry = _NOTHING
            mask = _C.ADDRESS
            forms = 0
            if _SECRET_PATH.search(word) and not word.startswith(("http", "mailto")) and "@" not in word:
                mask |= _C.SECRET | _C.PATH
        elif kind == "path":
            entry = _NOTHING
            forms = 0
            mask = _C.PATH | _C.SECRET if _SECRET_PATH.search(word) else 0
        else:
            entry = _NOTHING
            mask = _C.IDENTIFIER
            forms = 0
            if _SECRET_NAME.search(value):
                mask |= _C.SECRET
            if word in ("system_prompt", "conversation_history", "chat_history", "message_history"):
                mask |= _C.CONVERSATION
        sentence.words.append(word)
        sentence.masks.append(mask)
        sentence.forms.append(forms)
        entries.append(entry)
        starts.append(match.start())
    close(len(text))
    return sentences


_NOTHING = Entry(0, 0)


def _mark_phrases(sentence: Sentence, entries: list[Entry]) -> None:
    """Add the classes of phrases of several words to their words."""
    words = sentence.words
    for position, entry in enumerate(entries):
        for rest, mask, forms in entry.phrases:
            length = len(rest)
            if tuple(words[position + 1 : position + 1 + length]) == rest:
                for offset in range(length + 1):
                    sentence.masks[position + offset] |= mask
                sentence.forms[position] |= forms


def split_identifier(name: str) -> list[str]:
    """Return the words of an identifier, in lower case."""
    return [part.lower() for piece in re.split(r"[\W_]+", name) for part in _CAMEL.findall(piece)]
