"""What a process uses, under the names that Prometheus's own client libraries give it."""

import gc
import os
import resource
import time
from pathlib import Path

from pylog.metrics import Metrics

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_BOOT_TIME_FIELD = 19  # of /proc/PID/stat behind the name: clock ticks from the machine's start to the process's


def measure_process(metrics: Metrics) -> None:
    """Show CPU, memory, descriptors, start and garbage collection of this process, read at every scrape."""
    cpu = "CPU time of the process, user and system."
    metrics.value("process_cpu_seconds_total", "counter", cpu, time.process_time)
    resident = "Memory of the process that is in RAM."
    metrics.value("process_resident_memory_bytes", "gauge", resident, _resident_bytes)
    metrics.value("process_open_fds", "gauge", "Open file descriptors.", _open_descriptors)
    metrics.value("process_max_fds", "gauge", "File descriptors the process may open.", _max_descriptors)
    started = _start_time_s()
    metrics.gauge("process_start_time_seconds", "When the process started, since the Unix epoch.").value = started
    pauses = metrics.counter("python_gc_seconds_total", "Time that garbage collection took.")
    began_s = 0.0

    def note(phase: str, _info: dict[str, int]) -> None:
        nonlocal began_s
        now_s = time.perf_counter()
        if phase == "start":
            began_s = now_s
        else:
            pauses.value += now_s - began_s

    gc.callbacks.append(note)


def _resident_bytes() -> float:
    return float(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _open_descriptors() -> float:
    return float(sum(1 for _ in Path("/proc/self/fd").iterdir())) - 1  # one is the listing's own


def _max_descriptors() -> float:
    return float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _start_time_s() -> float:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_BOOT_TIME_FIELD])
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + ticks / _TICKS_A_SECOND
    return time.time() - time.process_time()
