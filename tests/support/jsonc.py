"""Strategies for values of every kind, and for JSON text of them in every form that JSONC allows."""

import json
from typing import Any

from hypothesis import strategies as st

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=4), max_leaves=8
)
GAPS = st.sampled_from(["", " ", "\n", "\r\n\t", "/* , ] } */", '// , " ] }\n', "/**/ /*\n*/"])


def dressed(value: Any, gap: Any) -> str:
    """Return `value` as text, with the output of `gap` wherever JSONC allows it, and trailing commas."""
    if isinstance(value, dict):
        parts = [f"{gap()}{json.dumps(k)}{gap()}:{gap()}{dressed(v, gap)}{gap()}" for k, v in value.items()]  # pyright: ignore[reportUnknownVariableType]
    elif isinstance(value, list):
        parts = [f"{gap()}{dressed(one, gap)}{gap()}" for one in value]  # pyright: ignore[reportUnknownVariableType]
    else:
        return json.dumps(value, ensure_ascii=gap() == "")
    comma = "," if parts and gap() else ""
    start, end = "{}" if isinstance(value, dict) else "[]"
    return start + ",".join(parts) + comma + gap() + end
