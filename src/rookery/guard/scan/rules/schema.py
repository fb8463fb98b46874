"""Parameters that ask for what the tool does not need, and values that carry instructions, commands or recipients."""

import re
from collections.abc import Iterator

from rookery.guard.scan.definition import Role, Text
from rookery.guard.scan.findings import Match
from rookery.guard.scan.lexicon import Concept as C, load_words
from rookery.guard.scan.rules.disclosure import is_ordinary_secret
from rookery.guard.scan.rules.passage import Passage
from rookery.guard.scan.sentences import split_identifier

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
    r"\b(?:ba|z)sh\s+-i\b|/dev/(?:tcp|udp)/|\bnc(?:at)?\s+(?:-\w+\s+)*-\w*e"
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
_QUERY = re.compile(
    r"!\[[^\]]{0,80}\]\(https?://[^)\s]{1,200}[?&/][^)\s]{0,80}(?:\{|\$|<|%7B|\[)|"
    r"<img\b[^>]{0,200}src=[\"']?https?://[^>\s]{1,200}(?:\{|\$|<)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--(.{12,}?)(?:-->|$)", re.DOTALL)
_INVISIBLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d])|"
    r"color\s*:\s*(?:white|transparent|#fff(?:fff)?)\b",
    re.IGNORECASE,
)
_PADDING = re.compile(r"\n(?:[ \t]*\n){14,}[ \t]*\S|[ \t\u00a0\u3000]{90,}\S")


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
    for match in _COMMAND.finditer(value):
        line = value[max(match.start() - 120, 0) : match.end()]
        commanded = any(
            sentence.start <= match.start() <= sentence.end + 200
            and any(sentence.command(index) == 2 for index in sentence.find(C.INVOKE | C.SEND | C.READ))
            for sentence in passage.sentences
        )
        if (text.role is Role.VALUE and "example" not in text.place) or (
            commanded and "e.g" not in line and "xample" not in line
        ):
            yield Match("dangerous-command", *match.span())
            return


def find_markup(passage: Passage) -> Iterator[Match]:
    """Text that is hidden from a person who reads the definition rendered, or that sends data when it is rendered."""
    text = passage.text
    for match in _COMMENT.finditer(text):
        mask = 0
        for sentence in passage.sentences:
            if sentence.start < match.end() and sentence.end > match.start():
                mask |= sentence.mask
        acts = C.DISREGARD | C.SEND | C.READ | C.TELL | C.OBEY | C.CHANGE | C.INVOKE | C.INCLUDE
        if mask & acts and mask & (
            C.YOU | C.MODEL | C.URGENT | C.SECRET | C.CONVERSATION | C.RULES | C.OUTSIDE | C.ADDRESS | C.TOOL | C.USER
        ):
            yield Match("hidden-markup", *match.span())
            return
    if (
        "<" in text
        and (match := _INVISIBLE.search(text))
        and "style" in text[max(match.start() - 60, 0) : match.start()]
    ) or (match := _QUERY.search(text)):
        yield Match("hidden-markup", *match.span())
    elif match := _PADDING.search(text):
        yield Match("hidden-markup", match.end() - 1, min(match.end() + 100, len(text)))
