"""A definition for people to look at: everything that it says, and nothing that may be a secret."""

from typing import Any, cast

from rookery.upstreams.definition import Definition

_HIDDEN = "(hidden)"


def shown(definition: Definition) -> dict[str, Any]:
    """What stands in its file, with placeholders as they were written; values of headers and variables are hidden."""
    written = dict(definition.written)
    for key in ("headers", "environment", "env"):
        if isinstance(written.get(key), dict):
            values = cast(dict[str, Any], written[key])
            written[key] = {name: value if _placeholder(value) else _HIDDEN for name, value in values.items()}
    return {
        "kind": definition.kind,
        "source": str(definition.source),
        "dialect": definition.source.dialect,
        "scope": definition.scope,
        "digest": definition.digest,
        "written": written,
    }


def _placeholder(value: Any) -> bool:
    """Whether it only says where the secret is."""
    text = str(value).strip()
    return (text.startswith("{") and text.endswith("}")) or (text.startswith("${") and text.endswith("}"))
