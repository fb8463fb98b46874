"""Counters and gauges, and their Prometheus text format. Names are registered once, at import."""

from collections.abc import Callable

_METRICS: dict[str, "Counter | Gauge"] = {}


class Counter:
    """A number that only grows; one value per combination of label values."""

    kind = "counter"

    def __init__(self, name: str, description: str, labels: tuple[str, ...]) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *labels: str, by: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + by

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0.0)

    def samples(self) -> list[tuple[tuple[str, ...], float]]:
        return sorted(self._values.items())


class Gauge:
    """A number that is read when the metrics are rendered."""

    kind = "gauge"
    labels: tuple[str, ...] = ()

    def __init__(self, name: str, description: str, read: Callable[[], float]) -> None:
        self.name = name
        self.description = description
        self.read = read

    def samples(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), self.read())]


def counter(name: str, description: str, *labels: str) -> Counter:
    """Register and return a counter; raise ValueError if the name is already registered."""
    metric = Counter(name, description, labels)
    if name in _METRICS:
        raise ValueError(f"metric {name} is registered twice")
    _METRICS[name] = metric
    return metric


def gauge(name: str, description: str, read: Callable[[], float]) -> None:
    """Register a gauge that calls `read`; a later registration of the same name replaces it."""
    _METRICS[name] = Gauge(name, description, read)


def render() -> str:
    """Return all metrics in the Prometheus text format 0.0.4."""
    lines: list[str] = []
    for name, metric in sorted(_METRICS.items()):
        lines += [f"# HELP {name} {metric.description}", f"# TYPE {name} {metric.kind}"]
        for values, number in metric.samples():
            pairs = ",".join(f'{key}="{_escape(value)}"' for key, value in zip(metric.labels, values, strict=True))
            lines.append(f"{name}{{{pairs}}} {number:.15g}" if pairs else f"{name} {number:.15g}")
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
