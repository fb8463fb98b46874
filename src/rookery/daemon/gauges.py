"""What is told of the daemon itself whenever somebody asks for its metrics."""

import resource

import psutil

from rookery.system import metrics
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.spawn import Spawner


def register_gauges(began: float, spawner: Spawner, events: Bus) -> None:
    me = psutil.Process()
    metrics.gauge("rookery_uptime_seconds", "Since the daemon started.", lambda: SYSTEM_CLOCK.monotonic() - began)
    metrics.gauge("rookery_children", "Processes of ours that run.", lambda: len(spawner.children))
    metrics.gauge("rookery_event_readers", "Readers of the event stream.", lambda: events.readers)
    metrics.gauge("rookery_resident_bytes", "Memory of the daemon itself.", lambda: me.memory_info().rss)
    metrics.gauge("rookery_open_files", "File descriptors in use.", me.num_fds)
    metrics.gauge(
        "rookery_open_files_limit",
        "File descriptors allowed.",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
