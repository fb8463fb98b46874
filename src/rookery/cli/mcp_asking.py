"""What a new server needs, asked on the terminal or taken from the words of a command, and what is wrong with it."""

import os
from collections.abc import Callable, Sequence

import click


def ask_name() -> str:
    return click.prompt("Name", err=True, value_proc=_proved(wrong_name))


def ask_server() -> tuple[tuple[str, ...], str | None]:
    kinds = click.Choice(["local", "remote"])
    kind = click.prompt("A local program, or a remote server", type=kinds, default="local", err=True)
    if kind == "remote":
        return (), click.prompt("URL", err=True, value_proc=_proved(wrong_url))
    line: str = click.prompt("Command", err=True, value_proc=_proved(_wrong_command))
    # No shell has seen this line.
    return tuple(os.path.expanduser(word) for word in _split(line)), None  # noqa: PTH111


def _proved(wrong: Callable[[str], str | None]) -> Callable[[str], str]:
    """Asked again until nothing is wrong with it."""

    def prove(text: str) -> str:
        if why := wrong(text.strip()):
            raise click.UsageError(why)
        return text.strip()

    return prove


def wrong_name(name: str) -> str | None:
    """The daemon knows more that a name cannot be; this is what people mistype."""
    if not name.strip() or "/" in name or not name.isprintable():
        return 'a name is not empty, and has no "/" and no control character in it'
    return None


def wrong_url(url: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    return None if fits and " " not in url else "an address begins with http:// or https:// and names a host"


def _wrong_command(line: str) -> str | None:
    try:
        return None if _split(line) else "a command has at least one word"
    except ValueError as error:
        return f"this cannot be split into words: {error}"


def _split(line: str) -> list[str]:
    import shlex

    return shlex.split(line)


def pairs(given: Sequence[str], option: str, separators: str) -> dict[str, str]:
    """NAME=VALUE; a header may also be written as HTTP writes it."""
    found: dict[str, str] = {}
    for pair in given:
        at = min((pair.find(one) for one in separators if one in pair), default=-1)
        if at < 1:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        found[pair[:at].strip()] = pair[at + 1 :].strip() if ":" in separators else pair[at + 1 :]
    return found
