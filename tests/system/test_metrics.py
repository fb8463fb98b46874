"""The Prometheus text."""

import pytest

from rookery.system import metrics


def test_counters_and_gauges_are_rendered_with_help_type_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_METRICS", {})
    plain = metrics.counter("a_total", "Plain.")
    labelled = metrics.counter("b_total", "Labelled.", "kind")
    metrics.gauge("c", "A gauge.", lambda: 2.5)
    plain.add()
    labelled.add('quo"te', by=3)
    labelled.add("x\ny\\z")
    assert metrics.render().splitlines() == [
        "# HELP a_total Plain.",
        "# TYPE a_total counter",
        "a_total 1",
        "# HELP b_total Labelled.",
        "# TYPE b_total counter",
        'b_total{kind="quo\\"te"} 3',
        'b_total{kind="x\\ny\\\\z"} 1',
        "# HELP c A gauge.",
        "# TYPE c gauge",
        "c 2.5",
    ]


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_METRICS", {})
    metrics.counter("a_total", "Plain.")
    with pytest.raises(ValueError, match="twice"):
        metrics.counter("a_total", "Plain.")
