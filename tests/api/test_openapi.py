"""The OpenAPI document: it is valid, and describes every route of the app with its parameters and responses."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from rookery.api.errors import ERROR_STATUSES
from rookery.api.openapi import OTHER_PATHS, make_openapi_document
from rookery.operations.operation import Operation, RestRoute
from rookery.operations.table import list_all_operations, make_unbound_operations
from tests.support.daemon.jobs import routes
from tests.support.requirements import requirement


def make_document() -> Any:
    return json.loads(make_openapi_document(make_unbound_operations(), "1.2.3"))


def list_described() -> Iterator[tuple[Operation, RestRoute, str, Any]]:
    """Yield each operation with its route, each of its paths, and what the document says of it."""
    paths = make_document()["paths"]
    for operation in list_all_operations():
        if (route := operation.declared.rest) is not None:
            for path in route.paths:
                yield operation, route, path, paths[path][route.method.lower()]


@requirement("ops.openapi.document")
def test_the_document_is_valid_openapi_of_version_3_1() -> None:
    import schemathesis

    document = make_document()
    assert document["openapi"].startswith("3.1.") and document["info"]["version"] == "1.2.3"
    schemathesis.openapi.from_dict(document).validate()
    references = set(re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(document)))
    assert len(references) > 20
    for reference in references:
        part = document
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]


@requirement("ops.openapi.document")
def test_the_document_describes_every_route_of_the_app() -> None:
    document = make_document()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    served = {(method, path) for method, path in routes() if method != "HEAD"}
    assert described <= served
    others = served - described
    assert {path for _, path in others} == {"/socket.io/"} <= OTHER_PATHS.keys()
    assert all(len(reason.split()) >= 4 for reason in OTHER_PATHS.values())


@requirement("ops.openapi.document")
def test_each_operation_has_an_id_a_summary_and_its_access() -> None:
    ids: list[str] = []
    for operation, _, _, described in list_described():
        ids.append(described["operationId"])
        assert described["summary"] == operation.summary.partition("\n")[0] != ""
        assert described["x-rookery-access"] == operation.declared.access
        assert (described.get("security") == []) == (operation.declared.access == "anyone")
    assert len(set(ids)) == len(ids) > 20


@requirement("ops.openapi.document")
def test_all_parameters_are_described_in_path_query_or_body() -> None:
    schemas = make_document()["components"]["schemas"]
    for operation, route, path, described in list_described():
        fields = {field.name: field for field in msgspec.structs.fields(operation.parameters)}
        names = {name: route.names.get(name, field.encode_name) for name, field in fields.items()}
        located: dict[str, set[str]] = {"path": set(), "query": set(), "header": set(), "body": set()}
        for parameter in described.get("parameters", []):
            located[parameter["in"]].add(parameter["name"])
            assert parameter["schema"] and (parameter["required"] or parameter["in"] != "path")
        if "requestBody" in described:
            body = schemas[described["requestBody"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]]
            located["body"] = set(body["properties"])
            required = {names[name] for name, field in fields.items() if field.required} & located["body"]
            assert set(body.get("required", ())) == required and body["additionalProperties"] is False
            assert described["requestBody"]["required"] == bool(required)
        assert located["header"] == set(route.headers.values())
        assert located["path"] == set(re.findall(r"{(\w+)}", path))
        rest = {json_name for name, json_name in names.items() if name not in located["path"]}
        expected = {"GET": (rest, set[str]()), "DELETE": (rest, rest)}.get(route.method, (set[str](), rest))
        assert (located["query"], located["body"]) == expected


@requirement("ops.openapi.document")
def test_each_response_has_a_status_a_media_type_and_a_schema() -> None:
    responses = make_document()["components"]["responses"]
    statuses = {int(name.removeprefix("Error")) for name in responses}
    assert statuses >= set(ERROR_STATUSES.values())
    for code, status in ERROR_STATUSES.items():
        assert f"`{code}`" in responses[f"Error{status}"]["description"]
    for operation, route, _, described in list_described():
        success = {status for status in described["responses"] if status[0] == "2"}
        assert success == {str(status) for status in route.statuses}
        for status in success:
            content = described["responses"][status]["content"]
            assert content.keys() == set(route.media_types)
            assert "schema" in content.get("application/json", {"schema": True}), operation.name
        errors = described["responses"].keys() - success
        assert errors >= {"400", "403", "413", "429", "500", "503"} and "default" not in errors
        assert ("415" in errors) == (route.method in ("POST", "PUT"))
        assert ("401" in errors) == (operation.declared.access != "anyone")
        assert all(
            described["responses"][status] == {"$ref": f"#/components/responses/Error{status}"} for status in errors
        )
