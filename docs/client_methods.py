"""The methods of the Python client, derived from the table of operations: names, parameters, texts and time limits.

Each operation with a REST route gets a method. An operation whose result has several forms (JSON, text, bytes, events)
gets one for each form. `generate_client.py` writes them as source text.
"""

import functools
import keyword
import re
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from rookery.operations.operation import Operation, RestRoute
from rookery.operations.results import Binary, BusEvents, PlainText
from rookery.operations.table import list_all_operations

Form = Literal["json", "text", "binary", "events"]
# A parameter in this unit is in seconds in Python.
MILLISECONDS = "milliseconds"
JSON_VALUES = {"true": "True", "false": "False"}


class ClientError(Exception):
    """An operation for which no method can be generated."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method. `wire_name` is its name in the request, `type` its type without annotations."""

    name: str
    wire_name: str
    type: Any
    text: str
    in_path: bool
    has_default: bool
    # Times are in seconds.
    default: Any
    in_milliseconds: bool
    # For a `timeout` whose default depends on other parameters: the longest default, in seconds.
    longest_default: float | None
    # The form of the result that the parameter selects, if it does.
    form: Form | None


@dataclass(frozen=True)
class Method:
    """A method of the client: one form of the result of one operation."""

    name: str
    operation: Operation
    route: RestRoute
    form: Form
    text: str
    parameters: tuple[Parameter, ...]
    # The parameter that is always true in this form.
    fixed: Parameter | None

    @property
    def required(self) -> list[Parameter]:
        """The positional parameters, those of the path first."""
        required = [parameter for parameter in self.parameters if not parameter.has_default]
        return sorted(required, key=lambda parameter: not parameter.in_path)

    @property
    def optional(self) -> list[Parameter]:
        """The parameters with a default, which are given by keyword."""
        return [parameter for parameter in self.parameters if parameter.has_default]


def list_groups() -> dict[str, list[Operation]]:
    """Return all operations by their group, without groups that have no method."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in list_all_operations():
        groups[operation.name.partition(".")[0]].append(operation)
    return {name: group for name, group in groups.items() if any(operation.declared.rest for operation in group)}


def list_methods(operation: Operation) -> Iterator[Method]:
    """Yield the methods for an operation: none if it has no REST route."""
    route = operation.declared.rest
    if route is None:
        return
    name = operation.name.partition(".")[2]
    parameters = list_parameters(operation)
    common = tuple(parameter for parameter in parameters if parameter.form is None)
    selectors = [parameter for parameter in parameters if parameter.form is not None]
    if len(selectors) > 1:
        raise ClientError(f"{operation.name}: only one parameter may select the form of the result")
    selector = selectors[0] if selectors else None
    yield Method(name, operation, route, find_form(operation), describe(operation, selector, False), common, None)
    if selector is not None:
        form = cast(Form, selector.form)
        yield Method(f"{name}_{form}", operation, route, form, describe(operation, selector, True), common, selector)


def find_form(operation: Operation) -> Form:
    """Return the form that the result has by default."""
    returned = get_type_hints(operation.method)["return"]
    kinds = get_args(returned) if is_union(returned) else (returned,)
    forms: dict[Any, Form] = {Binary: "binary", PlainText: "text", BusEvents: "events"}
    for kind in kinds:
        if kind in forms:
            return forms[kind]
    return "json"


def list_parameters(operation: Operation) -> list[Parameter]:
    """Return the parameters of an operation, in the order of their declaration."""
    route, tool = operation.declared.rest, operation.declared.mcp
    paths = route.paths if route is not None else ()
    names = list_names(operation)
    # What a model has to state, a program has to state too.
    required = tool.required if tool is not None else frozenset[str]()
    parameters: list[Parameter] = []
    for info in msgspec.structs.fields(operation.parameters):
        meta = find_meta(info.type)
        extra = meta.extra or {}
        in_milliseconds = extra.get("unit") == MILLISECONDS
        in_path = [f"{{{info.name}}}" in path for path in paths]
        in_all_paths = bool(in_path) and all(in_path)
        # A parameter of the path can be left out only if there is a shorter path without it.
        has_default = not (info.required or in_all_paths or info.name in required)
        default = None if info.default is msgspec.NODEFAULT else info.default
        text = to_python_text(meta.description or "", names, in_seconds=in_milliseconds)
        longest = extra.get("longest_default")
        parameters.append(
            Parameter(
                name=f"{info.name}_" if keyword.iskeyword(info.name) else info.name,
                wire_name=names.get(info.name, info.encode_name),
                type=remove_none(info.type) if in_all_paths else remove_annotations(info.type),
                text=text if has_default else re.sub(r"; default: .*", "", text),
                in_path=any(in_path),
                has_default=has_default,
                default=default / 1000 if in_milliseconds and default is not None else default,
                in_milliseconds=in_milliseconds,
                longest_default=longest / 1000 if longest is not None else None,
                form=extra.get("form"),
            )
        )
    return parameters


def find_time_limit(method: Method) -> tuple[float, Parameter | None]:
    """Return the time limit of a request, and the parameter that is added to it."""
    timeout = next((parameter for parameter in method.parameters if parameter.name == "timeout"), None)
    if timeout is not None and timeout.has_default and timeout.default is None and timeout.longest_default is None:
        raise ClientError(f"{method.operation.name}: `timeout` needs a default, or `longest_default` in its `extra`")
    return method.operation.declared.time_limit, timeout


# Types


def find_meta(hint: Any) -> Meta:
    """Return the description of a parameter."""
    metas = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, Meta)]
    return metas[-1] if metas else Meta()


def is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def remove_annotations(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def remove_none(hint: Any) -> Any:
    """Return the type without None."""
    hint = remove_annotations(hint)
    if not is_union(hint):
        return hint
    members = tuple(member for member in get_args(hint) if member is not types.NoneType)
    return Union[members]  # noqa: UP007 - the members are not known before


# Texts


def list_names(operation: Operation) -> Mapping[str, str]:
    """Return the names in REST of the parameters that are renamed there."""
    return {} if operation.declared.rest is None else operation.declared.rest.names


def describe(operation: Operation, selector: Parameter | None, selected: bool) -> str:
    """Return the text of a method for one form of the result: whether it is the one that `selector` selects."""
    # A paragraph about statuses is about REST.
    summary = re.sub(r"\n\nThe status is \d.*?(?=\n\n|$)", "", operation.summary, flags=re.DOTALL)
    text = to_python_text(summary, list_names(operation))
    if selector is None:
        return text
    # A clause or a paragraph about the parameter is about the other form.
    paragraphs = re.sub(rf"; `{selector.name}=True`[^;.]*", "", text).split("\n\n")
    if not selected:
        return "\n\n".join(paragraph for paragraph in paragraphs if f"`{selector.name}`" not in paragraph)
    beginning = re.compile(rf"^With `{selector.name}`, (.)")
    return "\n\n".join(beginning.sub(lambda match: match[1].upper(), paragraph) for paragraph in paragraphs)


def to_python_text(text: str, names: Mapping[str, str], *, in_seconds: bool = False) -> str:
    """Return a text about REST, JSON and milliseconds as a text about Python. `names` renames parameters in REST."""
    text = re.sub(r"`\?(\w+)=(?:<\w+>)?`", r"`\1`", text)
    text = re.sub(r"`\?(\w+)=(\w+)`", lambda match: f"`{match[1]}={JSON_VALUES.get(match[2], match[2])}`", text)
    text = re.sub(r"\bnull\b", "None", text)
    for python_name, rest_name in names.items():
        text = text.replace(f"`{rest_name}`", f"`{python_name}`")
    for tool, method in list_tools().items():
        text = re.sub(rf"`{tool}`|\b{tool}\b", f"`{method}`", text)
    if in_seconds:
        text = text.replace("milliseconds", "seconds")
        text = re.sub(r"\b(\d+)000\b", r"\1", text)
    return text


@functools.cache
def list_tools() -> dict[str, str]:
    """Return the method for each MCP tool, by the tool's name, if it has one."""
    return {
        operation.declared.mcp.name: operation.name
        for operation in list_all_operations()
        if operation.declared.mcp is not None and operation.declared.rest is not None
    }
