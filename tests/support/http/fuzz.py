"""Requests that schemathesis generates from an OpenAPI document, sent to a real daemon."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.daemon.process import Daemon

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@dataclass
class FuzzReport:
    """What was called, how many requests were sent, and what they have shown to be wrong."""

    operations: set[str] = field(default_factory=set[str])
    requests: int = 0
    failures: list[str] = field(default_factory=list[str])


def fuzz(
    daemon: Daemon,
    document: Mapping[str, Any],
    *,
    examples: int,
    excluded: Sequence[str] = (),
    values: Mapping[str, Sequence[str]] | None = None,
    only_values: Mapping[str, Mapping[str, str]] | None = None,
) -> FuzzReport:
    """Send generated requests to all operations of a document but the excluded ones.

    Each operation gets requests that cover its schema, and `examples` random ones. They are the same in every run.
    `values` has values that often occur for parameters such as `path.name`, `only_values` the only ones for parameters
    of an operation.
    """
    # Imported here, as this takes as long as many a test.
    import schemathesis
    from schemathesis.config import SchemathesisConfig
    from schemathesis.engine import events, from_schema

    config = SchemathesisConfig.from_dict(
        {
            "base-url": daemon.runtime["url"],
            "headers": {"Authorization": f"Bearer {daemon.token}"},
            "seed": 1,
            # In CPython 3.11 parsing Python in two threads, as hypothesis does, can fail (gh-106905).
            "workers": 1,
            "continue-on-failure": True,
            "request-timeout": 60,
            "cache": {"enabled": False},
            "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS}},
            "generation": {"deterministic": True, "max-examples": examples, "database": "none"},
            "phases": {"stateful": {"enabled": False}},
            "dictionaries": {f"values-{name}": {"values": [*known]} for name, known in (values or {}).items()},
            "parameters": {name: {"dictionary": f"values-{name}", "probability": 0.7} for name in (values or {})},
            "operations": [
                {"include-operation-id": id_, "parameters": dict(fixed)} for id_, fixed in (only_values or {}).items()
            ],
        }
    )
    schema = schemathesis.openapi.from_dict(dict(document), config=config)
    schema.validate()
    report = FuzzReport()
    for event in from_schema(schema.exclude(operation_id=[*excluded])).execute():
        if isinstance(event, events.ScenarioFinished):
            report.operations.add(event.label or "")
            report.requests += len(event.recorder.interactions)
            report.failures += list_failures(event)
        elif isinstance(event, events.NonFatalError):
            report.failures.append(f"{event.label}: {event.value!r}")
        elif isinstance(event, events.FatalError):
            raise event.exception
    return report


def list_failures(event: Any) -> Iterator[str]:
    """Yield each failed check of one scenario, with the request that shows it."""
    for checks in event.recorder.checks.values():
        for check in checks:
            if check.failure_info is not None:
                failure = check.failure_info.failure
                yield f"{event.label}: {failure.title}: {failure.message}\n{check.failure_info.code_sample}"
