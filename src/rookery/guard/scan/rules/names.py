"""Names that resemble those of other tools and servers, and references to other servers and hosts."""

import re
from collections.abc import Iterator, Mapping

from rookery.guard.scan.characters import fold_lookalikes, remove_hidden
from rookery.guard.scan.definition import Definition, Role, Text
from rookery.guard.scan.findings import Match, ScanFinding
from rookery.guard.scan.lexicon import Concept as C, load_words
from rookery.guard.scan.rules.passage import Passage

# Servers that many people use, by the name that they usually give them.
_KNOWN = load_words("known")
_DIGITS = str.maketrans("013457", "oieast")


def find_names(definition: Definition, tools: Mapping[str, frozenset[str]]) -> Iterator[ScanFinding]:
    """Yield findings about the names of a definition and of its server."""
    server = definition.server.lower()
    plain = fold_lookalikes(remove_hidden(server)).lower()
    if server and server not in _KNOWN:
        for known in _KNOWN:
            if plain == known or plain.translate(_DIGITS) == known:
                yield ScanFinding("lookalike-server", "severe", "server", definition.server)
            elif len(known) > 5 and _is_near(plain, known):
                yield ScanFinding("lookalike-server", "warning", "server", definition.server)
    if definition.kind != "tool":
        return
    name = definition.name
    folded = fold_lookalikes(remove_hidden(name))
    if folded != name:
        for other, theirs in tools.items():
            if other != definition.server and folded in theirs:
                yield ScanFinding("shadowed-name", "severe", "name", f"{name} looks like {folded} of {other}")


def _is_near(name: str, known: str) -> bool:
    """Return whether two names differ by one letter: replaced, added, left out, or swapped with its neighbour."""
    if abs(len(name) - len(known)) > 1 or name[:1] != known[:1] or not name.isascii() or name == known:
        return False
    if len(name) == len(known):
        wrong = [index for index, (one, other) in enumerate(zip(name, known, strict=True)) if one != other]
        swapped = (
            len(wrong) == 2
            and wrong[1] == wrong[0] + 1
            and name[wrong[0]] == known[wrong[1]]
            and name[wrong[1]] == known[wrong[0]]
        )
        return swapped or (len(wrong) == 1 and name[wrong[0]].isalnum())
    longer, shorter = (name, known) if len(name) > len(known) else (known, name)
    if longer == shorter + "s":
        return False
    return any(longer[:index] + longer[index + 1 :] == shorter for index in range(len(longer)))


def find_references(
    definition: Definition, text: Text, passage: Passage, tools: Mapping[str, frozenset[str]]
) -> Iterator[ScanFinding]:
    """Yield references to tools of other servers in what the model is told to do."""
    if len(tools) < 2 or text.role not in (Role.DESCRIPTION, Role.PARAMETER):
        return
    own = {name.lower() for name in tools.get(definition.server, frozenset())}
    for sentence in passage.sentences:
        if not sentence.has(C.IDENTIFIER):
            continue
        acts = any(sentence.command(index) == 2 for index in sentence.find(C.INVOKE | C.CHANGE | C.SEND))
        for position in sentence.find(C.IDENTIFIER):
            word = sentence.words[position]
            if word in own:
                continue
            owners = [server for server, theirs in tools.items() if server != definition.server and word in theirs]
            if acts and owners:
                excerpt = f"{word} is a tool of {owners[0]}"
                yield ScanFinding("cross-server-reference", "warning", text.place, excerpt)
                return


_REMOTE = re.compile(r"(?:file|https?|ftp)://", re.IGNORECASE)


def find_remote(passage: Passage, text: Text) -> Iterator[Match]:
    """Yield references of a schema that a client would have to fetch."""
    if text.place.endswith("$ref") and _REMOTE.match(passage.text):
        yield Match(
            "remote-reference", 0, len(passage.text), "severe" if passage.text.lower().startswith("file") else None
        )
