"""Risks that a user should notice about a definition before approving it. They decide nothing."""

import json
import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from rookery.guard.server import ServerDefinition

_ROOT = {"sudo", "doas", "su", "pkexec", "run0"}
_SHELLS = {"sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh"}
_FETCHERS = {"curl", "wget", "fetch", "nc", "ncat"}
_EVALUATORS = {"node", "bun", "deno", "python", "python3", "perl", "ruby", "php"}
_RUNNERS = {"npx", "bunx", "uvx", "pnpx"}
_RUNNING_VERBS = {("pnpm", "dlx"), ("yarn", "dlx"), ("pipx", "run"), ("uv", "x"), ("npm", "exec"), ("bun", "x")}
_CODE_LOADING_VARIABLE = re.compile(
    r"LD_.*|DYLD_.*|PATH|NODE_OPTIONS|NODE_PATH|PYTHON(PATH|STARTUP|HOME)|BASH_ENV|ENV|PERL5(OPT|LIB)|RUBY(OPT|LIB)"
    r"|JAVA_TOOL_OPTIONS|GIT_.*(COMMAND|EDITOR|PAGER)|.*_PROXY|EDITOR|PAGER",
    re.IGNORECASE,
)
_VARIABLE_REFERENCE = re.compile(r"\{env:([^{}]+)\}|\$\{(\w+)(?::-[^{}]*)?\}")
_HOME = re.compile(r"(?:^|[\s=:\"'])~|\$HOME\b|\$\{HOME\}|\{env:HOME\}|(?:^|[\s=:\"'])/(?:home|root|Users)\b")


class Risk(msgspec.Struct, frozen=True):
    level: Literal["warning", "note"]
    text: str


def find_risks(parts: ServerDefinition) -> list[Risk]:
    """Return the risks of a server definition, without duplicates."""
    return list(
        dict.fromkeys(
            [*_find_command_risks(parts.command), *_find_connection_risks(parts), *_find_environment_risks(parts)]
        )
    )


def _find_command_risks(command: list[str]) -> Iterator[Risk]:
    line = " ".join(command)
    words = re.findall(r"[^\s;|&()`\"']+", line)
    names = [word.rpartition("/")[2] for word in words]
    if programs := _ROOT & set(names):
        yield Risk("warning", f"asks for the rights of another user ({', '.join(sorted(programs))})")
    if "rm" in names and any(re.fullmatch(r"-\w*[rf]\w*|--recursive|--force", word) for word in words):
        yield Risk("warning", "deletes files (rm -r or -f)")
    if (fetchers := _FETCHERS & set(names)) and _SHELLS & set(names):
        yield Risk("warning", f"may run what it downloads ({', '.join(sorted(fetchers))} and a shell)")
    elif fetchers:
        yield Risk("warning", f"uses the network by itself ({', '.join(sorted(fetchers))})")
    for name, word in zip(names, words[1:], strict=False):
        if (name in _SHELLS and re.fullmatch(r"-\w*c|/c", word, re.IGNORECASE)) or (
            name in _EVALUATORS and re.fullmatch(r"-(e|c|r|p|-eval|-print)|eval", word)
        ):
            yield Risk("warning", f"runs code that is written in its arguments ({name} {word})")
    if _HOME.search(line):
        yield Risk("warning", "accesses a home folder")
    if not line.isascii():
        yield Risk("warning", "has non-ASCII characters in its command, which may look like other characters")
    yield from (Risk("note", text) for text in _find_unpinned(words, names))


def _find_unpinned(words: list[str], names: list[str]) -> Iterator[str]:
    """Yield notes on packages and images that are run without a fixed version."""
    pinned = any("@sha256:" in word for word in words)
    for number, (name, verb) in enumerate(zip(names, [*names[1:], ""], strict=False)):
        if name in _RUNNERS or (name, verb) in _RUNNING_VERBS:
            after = range(number + (1 if name in _RUNNERS else 2), len(words))
            package = next((words[later] for later in after if not words[later].startswith("-")), "")
            version = package.rpartition("==")[2] if "==" in package else package[1:].partition("@")[2]
            if package and version in ("", "latest", "next"):
                yield f"downloads {package} in its newest version at each start, because no version is pinned"
        elif name in ("docker", "podman") and verb == "run" and not pinned:
            yield f"runs an image that is not pinned by its digest ({name} run)"


def _find_connection_risks(parts: ServerDefinition) -> Iterator[Risk]:
    if not parts.url:
        return
    try:
        address = urlsplit(parts.url)
        host = address.hostname or ""
    except ValueError:
        yield Risk("warning", "has an invalid URL")
        return
    if address.scheme != "https" and host not in ("127.0.0.1", "localhost", "::1"):
        yield Risk("warning", "uses an unencrypted connection")
    if address.username or address.password:
        yield Risk("warning", f"has a name or password before the host, which is {host}")
    if not parts.url.isascii() or "xn--" in host:
        yield Risk("warning", f"has a host that may look like another one ({host})")


def _find_environment_risks(parts: ServerDefinition) -> Iterator[Risk]:
    written = json.dumps([parts.command, parts.url, parts.environment, parts.headers, parts.other])
    variables = sorted({braced or dollar for braced, dollar in _VARIABLE_REFERENCE.findall(written)})
    if variables:
        verb = "is sent" if parts.url else "gets"
        yield Risk("warning", f"{verb} the content of your variables: {', '.join(variables)}")
    if parts.other.get("inherit"):
        yield Risk("warning", "gets your whole environment, with all tokens and keys in it")
    if names := sorted(name for name in parts.environment if _CODE_LOADING_VARIABLE.fullmatch(name)):
        yield Risk("warning", f"sets variables that can make programs load other code: {', '.join(names)}")
    if parts.cwd.startswith(("/", "~", "..")) or "/.." in parts.cwd:
        yield Risk("note", f"runs in another folder ({parts.cwd})")
