"""CPU seconds and memory of processes, from /proc.

python -m bench.harness.process PID -- COMMAND      the CPU seconds PID used while COMMAND ran
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used up to one moment; the difference of two is what a run cost.

    Attributes:
        broker_cpu_s: by the broker's process, its threads included.
        own_cpu_s: by this process.
        clients_cpu_s: by children of this process that ended: the clients.
        machine_cpu_s: by everything on the machine.
    """

    broker_cpu_s: float
    own_cpu_s: float
    clients_cpu_s: float
    machine_cpu_s: float

    def __sub__(self, earlier: "Usage") -> "Usage":
        return Usage(
            self.broker_cpu_s - earlier.broker_cpu_s,
            self.own_cpu_s - earlier.own_cpu_s,
            self.clients_cpu_s - earlier.clients_cpu_s,
            self.machine_cpu_s - earlier.machine_cpu_s,
        )

    @property
    def other_cpu_s(self) -> float:
        """What neither broker nor client nor benchmark used: the noise of a run."""
        return self.machine_cpu_s - self.broker_cpu_s - self.own_cpu_s - self.clients_cpu_s


def usage(broker_pid: int) -> Usage:
    """Return what was used until now."""
    times = os.times()
    return Usage(
        cpu_s(broker_pid), times.user + times.system, times.children_user + times.children_system, _machine_cpu_s()
    )


def cpu_s(pid: int) -> float:
    """Return the CPU seconds a process has used, in user and kernel mode."""
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Return the megabytes (10^6 bytes) of memory a process holds."""
    return int(_stat(pid)[21]) * _PAGE_BYTES / 1e6


def _stat(pid: int) -> list[str]:
    # Fields after the command's name, which may hold spaces and brackets itself.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _machine_cpu_s() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / _TICKS_PER_S


def main(arguments: list[str]) -> int:
    """Run a command and print what a process used meanwhile."""
    pid, separator, *command = arguments
    assert separator == "--", __doc__
    before = cpu_s(int(pid))
    code = subprocess.call(command)
    print(f"cpu_s={cpu_s(int(pid)) - before:.2f} rss_mb={rss_mb(int(pid)):.0f}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
