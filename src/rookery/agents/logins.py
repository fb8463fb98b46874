"""Which model providers OpenCode can ask, told from its files and from the environment, without running it."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.agents.project_config import FILES, ReadJson
from rookery.system.files import read_plain

# The provider of OpenCode's own makers, some of whose models are for everybody.
FREE = "opencode"
_LARGEST = 50_000_000
# Of providers that many people use. OpenCode keeps a list of all, once it has fetched it.
_VARIABLES = {
    "anthropic": ["ANTHROPIC_API_KEY"],
    "openai": ["OPENAI_API_KEY"],
    "google": ["GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"],
    "amazon-bedrock": ["AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"],
    "azure": ["AZURE_API_KEY"],
    "openrouter": ["OPENROUTER_API_KEY"],
    "mistral": ["MISTRAL_API_KEY"],
    "groq": ["GROQ_API_KEY"],
    "deepseek": ["DEEPSEEK_API_KEY"],
    "xai": ["XAI_API_KEY"],
    "opencode": ["OPENCODE_API_KEY"],
}


class Login(msgspec.Struct, frozen=True):
    """A provider, and what makes it usable. Never the key itself."""

    provider: str
    by: str


class _Listed(msgspec.Struct):
    env: list[str]


def logins(environment: Mapping[str, str], read: ReadJson) -> list[Login]:
    """Each provider once, with the first reason that was found. `read` reads JSON with comments."""
    found: dict[str, Login] = {}
    for one in (*_signed_in(environment), *_keys(environment), *_configured(environment, read)):
        found.setdefault(one.provider, one)
    return list(found.values())


def _signed_in(environment: Mapping[str, str]) -> Iterator[Login]:
    file = _folder(environment, "XDG_DATA_HOME", ".local/share") / "auth.json"
    given = environment.get("OPENCODE_AUTH_CONTENT")
    told = _object(given.encode(), json.loads) if given else _file(file, json.loads)
    for provider, login in told.items():
        if isinstance(login, dict):
            yield Login(provider, "signed in")


def _keys(environment: Mapping[str, str]) -> Iterator[Login]:
    listed = _file(_folder(environment, "XDG_CACHE_HOME", ".cache") / "models.json", json.loads)
    for provider, variables in (_variables(listed) or _VARIABLES).items():
        for variable in variables:
            if environment.get(variable):
                yield Login(provider, variable)


def _variables(listed: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for provider, told in listed.items():
        with contextlib.suppress(msgspec.ValidationError):
            found[provider] = msgspec.convert(told, _Listed).env
    return found


def _configured(environment: Mapping[str, str], read: ReadJson) -> Iterator[Login]:
    """Those that a config of the user's gives an address or a key."""
    folder = _folder(environment, "XDG_CONFIG_HOME", ".config")
    files = [folder / name for name in (*FILES, "config.json")]
    files += [Path(environment["OPENCODE_CONFIG"])] if environment.get("OPENCODE_CONFIG") else []
    for file in files:
        yield from _providers(_file(file, read), file.name)
    if inline := environment.get("OPENCODE_CONFIG_CONTENT"):
        yield from _providers(_object(inline.encode(), read), "OPENCODE_CONFIG_CONTENT")


def _providers(config: Mapping[str, Any], where: str) -> Iterator[Login]:
    providers = config.get("provider")
    for provider, told in cast("dict[str, Any]", providers).items() if isinstance(providers, dict) else ():
        options: Any = cast("dict[str, Any]", told).get("options") if isinstance(told, dict) else None
        if isinstance(options, dict) and ("apiKey" in options or "baseURL" in options):
            yield Login(provider, where)


def _folder(environment: Mapping[str, str], variable: str, usual: str) -> Path:
    home = Path(environment.get("HOME") or Path.home())
    return Path(environment.get(variable) or home / usual) / "opencode"


def _file(path: Path, read: ReadJson) -> dict[str, Any]:
    """What cannot be read counts as not there: OpenCode itself tells of it."""
    try:
        return _object(read_plain(path, _LARGEST), read)
    except (OSError, ValueError):
        return {}


def _object(data: bytes, read: ReadJson) -> dict[str, Any]:
    try:
        found: Any = read(data.decode())
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
