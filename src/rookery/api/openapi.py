"""The OpenAPI document of the REST routes, made from the operations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from rookery.api.errors import ERROR_STATUSES
from rookery.api.rest import ParameterDecoder
from rookery.operations.operation import BoundOperation, Operation, RestRoute, rename_parameters
from rookery.operations.results import require_all_members

Json = dict[str, Any]

_REF = "#/components/schemas/"
_REFERENCE = re.compile(rf'"{_REF}([^"]+)"')

# Paths on the same address that are not REST.
OTHER_PATHS = {
    "/socket.io/": "Socket.IO, for editor extensions: its messages are events on one connection, not requests",
    "/mcp": "MCP over Streamable HTTP: its messages are JSON-RPC, and each client gets its own list of tools",
    "/sse": "MCP over HTTP+SSE, for older clients; `/messages` receives its messages",
    "/ws": "MCP over WebSocket, with the messages of `/mcp`",
    "/w/{project}/{workspace}/mcp": "MCP for one workspace, like `/mcp`",
    "/w/{project}/{workspace}/s/{server}/mcp": "MCP for one server of a workspace, like `/mcp`",
}

# The codes of error responses that are sent before an operation is called.
_REQUEST_ERRORS = {
    400: ("bad-request", "invalid-input"),
    401: ("unauthorized",),
    403: ("forbidden", "foreign-origin"),
    408: ("head-time", "body-time"),
    413: ("body-too-large",),
    415: ("not-json",),
    421: ("wrong-host",),
    429: ("too-many-connections",),
    431: ("headers-too-large",),
    500: ("internal-error",),
    503: ("too-many-bytes",),
}
# The codes that any operation may fail with: the store or the disk cannot be used.
_COMMON_ERRORS = {503: ("store-busy",), 507: ("disk-full",)}

_ERROR: Json = {
    "type": "object",
    "description": "An error: a code for programs, what happened, what to do about it, and the items concerned.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "remedy": {"type": "string"},
                "details": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}

_DESCRIPTION = """\
The REST routes of a Rookery daemon. The app port requires the owner's token, which is in the file `token` of the state
folder. The Unix socket in the same folder serves the same routes without a token.

Each name in a path is one percent-encoded segment. Fields of a body may be in the query instead; if both have one, the
body counts. Other parameters in the query that are not described are ignored, and a parameter without a value counts as
not given, unless it has a minimum length. Fields of a body that are not described are an error.

Every GET route also has HEAD; a path that does not exist is a 404, and another method of a path is a 405, both with an
`Error`.

`x-rookery-access` says who may call an operation: `anyone`; the `owner`, by token or Unix socket; a `workspace`, which
is the owner here, and over MCP also the token of that workspace. Three kinds are open over the Unix socket alone: to
any client of the `socket`, to a `person` (a process that Rookery has not started), and to a person at a `terminal`.

`x-rookery-other-paths` names what else the daemon serves on this address."""


def make_openapi_document(operations: Iterable[BoundOperation[Any]], version: str) -> bytes:
    """Return the OpenAPI 3.1 document of all operations that have a REST route, as JSON."""
    routes = [
        _DescribedRoute(bound.operation, route, path)
        for bound in operations
        if (route := bound.operation.declared.rest) is not None
        for path in route.paths
    ]
    schemas = _Schemas(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.route.method.lower()] = route.describe(schemas)
    codes = _list_error_codes()
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Rookery", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {"Error": _ERROR, **schemas.components},
            "responses": {_name_response(status): _describe_error(status, codes[status]) for status in codes},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The owner's token, for the app port."}
            },
        },
        "x-rookery-other-paths": OTHER_PATHS,
    }
    return msgspec.json.encode(document)


def list_error_statuses(operation: Operation, route: RestRoute) -> list[int]:
    """Return the statuses of errors that an operation may respond with."""
    if operation.declared.access == "anyone":
        return sorted(_REQUEST_ERRORS.keys() - {401, 415})
    statuses = _REQUEST_ERRORS.keys() | _COMMON_ERRORS.keys()
    if route.method not in ("POST", "PUT"):
        statuses -= {415}
    # An operation that takes no parameters and changes nothing needs nothing that could be missing, busy or failing.
    if operation.declared.changes or msgspec.structs.fields(operation.parameters):
        statuses |= {404, *ERROR_STATUSES.values()}
    return sorted(statuses)


class _DescribedRoute:
    """One path of an operation, with the types of its parameters and of its body."""

    def __init__(self, operation: Operation, route: RestRoute, path: str) -> None:
        self._operation = operation
        self.route = route
        self.path = path
        # The second path of an operation omits parameters, and needs an id of its own.
        self._id = operation.name if path == route.path else f"{operation.name}.default"
        self._decoder = ParameterDecoder(operation, route, path)
        title = "".join(word.capitalize() for word in re.split(r"[._]", self._id))
        in_path = frozenset(self._decoder.in_path)
        self.parameters = self._rename(f"{title}Parameters", frozenset())
        self.body = self._rename(f"{title}Body", in_path) if self._decoder.has_body else None
        self.result = operation.result if "application/json" in route.media_types else None

    def _rename(self, title: str, omit: frozenset[str]) -> type[msgspec.Struct]:
        kind = self._operation.parameters
        names = self.route.names
        return rename_parameters(kind, names, forbid_unknown=True, omit=omit, title=title)

    def describe(self, schemas: "_Schemas") -> Json:
        """Return the OpenAPI operation."""
        declared = self._operation.declared
        summary = self._operation.summary
        errors = {
            str(status): {"$ref": f"#/components/responses/{_name_response(status)}"}
            for status in list_error_statuses(self._operation, self.route)
        }
        return {
            "operationId": self._id,
            "summary": summary.partition("\n")[0],
            **({"description": summary} if "\n" in summary else {}),
            "tags": [self._id.partition(".")[0]],
            "x-rookery-access": declared.access,
            **({"security": []} if declared.access == "anyone" else {}),
            **self._describe_parameters(schemas),
            "responses": {str(status): self._describe_success(status, schemas) for status in self.route.statuses}
            | errors,
        }

    def _describe_parameters(self, schemas: "_Schemas") -> Json:
        """Return the parameters in path and query, and the body. A DELETE takes the same ones in query and body."""
        decoder = self._decoder
        properties = schemas.get_properties(self.parameters)
        required = {field.encode_name for field in msgspec.structs.fields(self.parameters) if field.required}
        parameters = [
            _describe_parameter("path", name, properties[json_name], required=True)
            for name, json_name in decoder.in_path.items()
        ]
        if self.route.method in ("GET", "DELETE"):
            parameters += [
                _describe_parameter("query", name, properties[name], required=name in required and self.body is None)
                for name in decoder.in_body
            ]
        parameters += [
            _describe_parameter("header", header, properties[name], required=False)
            for name, header in decoder.headers.items()
        ]
        described: Json = {"parameters": parameters} if parameters else {}
        if self.body is not None:
            content = {"application/json": {"schema": schemas.get(self.body)}}
            described["requestBody"] = {"required": not required.isdisjoint(decoder.in_body), "content": content}
        return described

    def _describe_success(self, status: int, schemas: "_Schemas") -> Json:
        content: Json = {media_type: {} for media_type in self.route.media_types}
        if self.result is not None:
            content["application/json"] = {"schema": schemas.get(self.result)}
        return {"description": HTTPStatus(status).phrase, "content": content}


class _Schemas:
    """The schemas of all parameters, bodies and results, with a component for each struct."""

    def __init__(self, routes: Sequence[_DescribedRoute]) -> None:
        bodies = [route.body for route in routes if route.body is not None]
        parameters = [route.parameters for route in routes]
        results = {repr(route.result): route.result for route in routes if route.result is not None}
        kinds = [*bodies, *parameters, *results.values()]
        schemas, components = msgspec.json.schema_components(kinds, ref_template=f"{_REF}{{name}}")
        self._by_kind = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
        self._properties = {
            kind: components.pop(self.get(kind)["$ref"].removeprefix(_REF))["properties"] for kind in parameters
        }
        # In results every member is present; in requests those with a default may be omitted.
        sent = _find_references([self.get(kind) for kind in bodies], components)
        self.components = {
            name: schema if name in sent else require_all_members(schema) for name, schema in sorted(components.items())
        }

    def get(self, kind: Any) -> Json:
        return self._by_kind[repr(kind)]

    def get_properties(self, kind: type[msgspec.Struct]) -> Json:
        return self._properties[kind]


def _find_references(schemas: Sequence[Json], components: Mapping[str, Json]) -> set[str]:
    """Return the names of all components that these schemas refer to."""
    names: set[str] = set()
    waiting = [*schemas]
    while waiting:
        found = set(_REFERENCE.findall(msgspec.json.encode(waiting.pop()).decode())) - names
        names |= found
        waiting += [components[name] for name in found if name in components]
    return names


def _describe_parameter(location: str, name: str, schema: Json, *, required: bool) -> Json:
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": location, "required": required, **description, "schema": _simplify_scalar(schema)}


def _simplify_scalar(schema: Json) -> Json:
    """Return the schema of a value in a path or a query: without null, which cannot be written there."""
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "description")}
    if plain.get("default", "") is None:
        del plain["default"]
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if "enum" in plain:
        plain["enum"] = [value for value in plain["enum"] if value is not None]
    return plain | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})


def _list_error_codes() -> dict[int, list[str]]:
    """Return all statuses of errors, each with the codes that have it."""
    codes = {status: [*names] for status, names in _REQUEST_ERRORS.items()}
    for code, status in ERROR_STATUSES.items():
        names = codes.setdefault(status, [])
        if code not in names:
            names.append(code)
    codes[404] = ["route-not-found", "codes that end in `-not-found`"]
    codes[500].append("codes without a status of their own")
    return dict(sorted(codes.items()))


def _name_response(status: int) -> str:
    return f"Error{status}"


def _describe_error(status: int, codes: Sequence[str]) -> Json:
    described = ", ".join(code if " " in code else f"`{code}`" for code in codes)
    content = {"application/json": {"schema": {"$ref": f"{_REF}Error"}}}
    return {"description": f"{HTTPStatus(status).phrase}: {described}", "content": content}
