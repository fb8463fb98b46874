"""Fills in what a step takes from the request: `{{user}}`, `{{result}}` and `{{result.2}}`, in text and arguments."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rookery.testing.asked import Asked
from rookery.testing.script import Call, Step

_REFERENCE = re.compile(r"\{\{(user|result)(?:\.(\d+))?\}\}")


def fill(step: Step, asked: Asked) -> tuple[str, tuple[Call, ...]]:
    """What a step says and calls; LookupError if it refers to a result that is not there."""

    def value(found: re.Match[str]) -> str:
        name, number = found.groups()
        if name == "user":
            return asked.said[-1]
        # Without a number it is the last one.
        index = int(number) - 1 if number else len(asked.results) - 1
        if not 0 <= index < len(asked.results):
            raise LookupError(found[0])
        return asked.results[index]

    def filled(given: Any) -> Any:
        if isinstance(given, str):
            return _REFERENCE.sub(value, given)
        if isinstance(given, Mapping):
            return {key: filled(one) for key, one in cast(Mapping[str, Any], given).items()}
        if isinstance(given, Sequence):
            return [filled(one) for one in cast(Sequence[Any], given)]
        return given

    calls = tuple(Call(call.call, filled(call.arguments)) for call in step.calls)
    return filled(step.say or ""), calls
