"""Parameters that ask for what the tool does not need, and values that carry instructions, commands or recipients."""

import re
from collections.abc import Iterator

from rookery.guard.scan.definition import Role, Text
from rookery.guard.scan.findings import Match
from rookery.guard.scan.lexicon import Concept as C, load_words
from rookery.guard.scan.rules.disclosure import is_ordinary_secret
from rookery.guard.scan.rules.passage import Passage, weigh_commands
from rookery.guard.scan.sentences import Sentence, split_identifier

_LABELS = load_words("labels")
_OWNERS = load_words("owners")

_WHOLE = load_words("whole")
_PROMPTS = load_words("prompts")
_SECRETS = load_words("secrets")
_CHAT = load_words("chat")


def find_parameters(passage: Passage, text: Text, required: bool, tool_words: frozenset[str]) -> Iterator[Match]:
    """A parameter asks for the conversation, the model's instructions, or secrets that the tool has no use for."""
    whole = Match("risky-parameter", 0, len(passage.text))
    if text.role is Role.PARAMETER_NAME:
        name = "_".join(split_identifier(text.value))
        if name in _PROMPTS and not tool_words & _CHAT and (required or name != text.value.lower()):
            yield whole
        return
    if text.role is not Role.PARAMETER:
        return
    name = "_".join(split_identifier(text.parameter))
    for sentence in passage.sentences:
        mask = sentence.mask
        if not mask & (C.CONVERSATION | C.SECRET) or sentence.foreign:
            continue
        words = sentence.words
        scope = set(words) & _WHOLE
        pressed = bool(mask & (C.COVER | C.URGENT | C.MODAL)) or "internal" in words
        for position in sentence.find(C.CONVERSATION | C.SECRET):
            if sentence.is_negated(position, 6):
                continue
            target = sentence.masks[position]
            following = set(words[position + 1 : position + 3])
            if following & _LABELS or mask & C.EXAMPLE:
                continue
            if target & C.CONVERSATION:
                if tool_words & _CHAT:
                    continue
                if (scope and (pressed or required or name in _PROMPTS or words[position] in ("chat", "system"))) or (
                    name in _PROMPTS and pressed
                ):
                    yield Match("risky-parameter", sentence.start, sentence.end)
                    return
            elif (
                target & C.PATH
                and set(words) & {"content", "contents", "text", "value", "output"}
                and not passage.topic & C.SECRET
            ):
                yield Match("risky-parameter", sentence.start, sentence.end)
                return
            elif not passage.topic & C.SECRET and not is_ordinary_secret(sentence, position):
                owner = set(words) & _OWNERS
                if (
                    (scope and (pressed or owner))
                    or (owner and pressed)
                    or (name in _SECRETS and pressed and not tool_words & _LOGIN)
                ):
                    yield Match("risky-parameter", sentence.start, sentence.end)
                    return
            elif (
                scope
                and set(words) & {"user's", "machine", "host", "system", "their", "process"}
                and not passage.topic & C.SECRET
            ) or (name in _SECRETS and scope and pressed and not passage.topic & C.SECRET and not tool_words & _LOGIN):
                yield Match("risky-parameter", sentence.start, sentence.end)
                return


_LOGIN = load_words("login")

_KEYS = frozenset(
    [
        "ssh_private_key",
        "private_ssh_key",
        "id_rsa",
        "seed_phrase",
        "saved_passwords",
        "browser_cookies",
        "shell_history",
        "bash_history",
        "aws_credentials",
        "env_dump",
    ]
)
_RECIPIENT = load_words("recipient")
_LITERAL = re.compile(
    r"(?:mailto:)?[\w.+-]{1,64}@([\w-]{1,63}(?:\.[\w-]{1,63}){1,6})|(?:https?|wss?|ftp)://([^\s/:?#]{1,253})",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"(?:^|\.)(?:example\.(?:com|org|net)|localhost|127\.0\.0\.1|test|invalid|local|yourdomain\.com|"
    r"domain\.com|mycompany\.com|company\.com|acme\.com)$",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"\b(?:curl|wget|fetch|iwr|invoke-webrequest)\b[^\n|;]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b|"
    r"\b(?:ba|z)sh\s+-i\b|/dev/(?:tcp|udp)/|\bnc(?:at)?\s+(?:-\w{1,30}\s+){0,6}-\w{0,30}e"
    r"|\brm\s+-(?:rf|fr|r\s+-f)\s+(?:/|~|\$HOME|--no-preserve-root|\*)|\bcat\s+[^\n|;]{0,40}(?:\.ssh|\.aws|"
    r"/etc/(?:passwd|shadow)|\.env|id_rsa)[^\n]{0,40}\|"
    r"|\bcurl\b[^\n]{0,120}(?:--data(?:-binary)?|-d|-F|--upload-file|-T)\s*[\"']?@|[;&|`]\s*(?:curl|wget|"
    r"nc|bash|sh)\s|\$\((?:curl|cat|wget|env|printenv)\b|`(?:curl|cat|wget|env)\s"
    r"|\bpowershell\b[^\n]{0,60}-e(?:nc|ncodedcommand)?\b|\bchmod\s+(?:777|\+s)\b[^\n]{0,40}/|"
    r"\bprintenv\b\s*\||\benv\s*\|\s*(?:curl|nc|base64)|\bcrontab\s+-|>>\s*~/\.(?:bashrc|zshrc|profile|"
    r"ssh/authorized_keys)",
    re.IGNORECASE,
)
# Something that every dangerous command has; most texts do not.
_SHELL = re.compile(r"[|$`@>&;]|/dev/|\brm\s+-|\bchmod\b|\b(?:ba|z)sh\b|powershell|crontab|\bnc", re.IGNORECASE)
# The address of a picture, and a blank in it that is to be filled in.
_PICTURE = re.compile(
    r"!\[[^\]]{0,80}\]\(https?://([^)\s]{1,300})|<img\b[^>]{0,200}src=[\"']?https?://([^>\s]{1,200})", re.IGNORECASE
)
_PATH = re.compile(r"[?&/]")
_BLANK = re.compile(r"\{|\$|<|%7B|\[", re.IGNORECASE)
_COMMENT = re.compile(r"<!--(.{12,}?)(?:-->|$)", re.DOTALL)
_INVISIBLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d])|"
    r"color\s*:\s*(?:white|transparent|#fff(?:fff)?)\b",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s{15,}")
_LEAST_PADDING_LINES = 15
_LEAST_PADDING_COLUMNS = 90


def find_payloads(passage: Passage, text: Text) -> Iterator[Match]:
    """A value holds a recipient, a command or a secret file that the user did not choose."""
    value = passage.text
    if text.role is Role.VALUE:
        recipient = set(split_identifier(text.parameter)) & _RECIPIENT
        for match in _LITERAL.finditer(value):
            host = match[1] or match[2]
            if (
                (recipient and not _HARMLESS.search(host) and ".default" in text.place + ".")
                or (recipient and ".const" in text.place)
            ) and not _HARMLESS.search(host):
                yield Match("payload-value", *match.span())
                return
        if "default" in text.place or "const" in text.place or "enum" in text.place:
            for sentence in passage.sentences:
                if (
                    sentence.has(C.PATH)
                    and not passage.topic & C.SECRET
                    and any(sentence.masks[index] & C.SECRET for index in sentence.find(C.PATH))
                ):
                    yield Match("payload-value", sentence.start, sentence.end)
                    return
    if not _SHELL.search(value):
        return
    literal = text.role is Role.VALUE and "example" not in text.place
    commanding: dict[int, bool] = {}
    for match in _COMMAND.finditer(value):
        line = value[max(match.start() - 120, 0) : match.end()]
        if literal or (
            "e.g" not in line
            and "xample" not in line
            and any(_commands(sentence, commanding) for sentence in passage.overlap(match.start() - 201, match.start()))
        ):
            yield Match("dangerous-command", *match.span())
            return


def _commands(sentence: Sentence, known: dict[int, bool]) -> bool:
    """Return whether a sentence tells the reader to run something; `known` has the sentences that were read before."""
    if (commands := known.get(sentence.index)) is None:
        acts = sentence.find(C.INVOKE | C.SEND | C.READ)
        commands = known[sentence.index] = any(sentence.command(index) == 2 for index in acts)
    return commands


def find_markup(passage: Passage) -> Iterator[Match]:
    """Text that is hidden from a person who reads the definition rendered, or that sends data when it is rendered."""
    text = passage.text
    for match in _COMMENT.finditer(text):
        mask = 0
        for sentence in passage.overlap(match.start(), match.end() - 1):
            mask |= sentence.mask
        acts = C.DISREGARD | C.SEND | C.READ | C.TELL | C.OBEY | C.CHANGE | C.INVOKE | C.INCLUDE
        if mask & acts and mask & (
            C.YOU | C.MODEL | C.URGENT | C.SECRET | C.CONVERSATION | C.RULES | C.OUTSIDE | C.ADDRESS | C.TOOL | C.USER
        ):
            yield Match("hidden-markup", *match.span())
            return
    for match in _INVISIBLE.finditer(text) if "<" in text else ():
        if "style" in text[max(match.start() - 60, 0) : match.start()]:
            # A style without an order in it is one that the tool works with.
            severity = None if weigh_commands(passage, match.end()) else "warning"
            yield Match("hidden-markup", *match.span(), severity)
            return
    for match in _PICTURE.finditer(text):
        if _takes_data(match):
            yield Match("hidden-markup", *match.span())
            return
    yield from _find_padding(passage)


def _takes_data(match: re.Match[str]) -> bool:
    """Return whether the address of a picture has a blank, in its path if it is written in Markdown."""
    if (address := match[1]) is None:
        return _BLANK.search(match[2]) is not None
    path = _PATH.search(address, 1)
    return path is not None and _BLANK.search(address, path.end()) is not None


def _find_padding(passage: Passage) -> Iterator[Match]:
    """Yield orders that long gaps move out of sight. Gaps without one, and those of tables, are layout."""
    text = passage.text
    for match in _SPACE.finditer(text):
        lines = match.group().split("\n")
        if len(lines) <= _LEAST_PADDING_LINES and max(map(len, lines)) < _LEAST_PADDING_COLUMNS:
            continue
        weight = 0 if "|" in text[match.start() - 1 : match.end() + 1] else weigh_commands(passage, match.end())
        if weight:
            end = min(match.end() + 100, len(text))
            yield Match("hidden-markup", match.end(), end, None if weight > 1 else "warning")
            return
