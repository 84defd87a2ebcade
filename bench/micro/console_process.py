"""What the console takes as a process beside a broker: start, memory, idle, many viewers, and a long search.

python -m bench.micro.console_process [--idle-s 60] [--viewers 100] [--records 1000000]

CPU is that of the console's process alone, so a busy neighbour shows little in it; times of pages are shown with the
machine's load.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.message import Message
from pylog.client.producer import Producer
from pylog.testing import BrokerProcess

READY_S = 600.0
VIEW_S = 5.0
"""Between two pages of one viewer."""
VIEWED_S = 30.0
MAX_PAGES = 100
"""Of one search."""


class Console:
    """A console beside *bootstrap*, on a free port."""

    def __init__(self, bootstrap: str) -> None:
        command = [sys.executable, "-m", "pylog", "console", "--port", "0", "--payloads", "--bootstrap", bootstrap]
        self._began_s = time.monotonic()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        line = next(one for one in self._process.stdout if "event=ready" in one)
        self.url = line.partition("url=")[2].split()[0].strip('"').rstrip("/")
        self.ready_s, self.ready_cpu_s = time.monotonic() - self._began_s, self.cpu_s()
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def cpu_s(self) -> float:
        """Return the processor time of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pss_mb(self) -> float:
        """Return its memory, with its share of what others use too, in MB."""
        rows = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) * 1024 / 1e6

    def get(self, path: str) -> bytes:
        """Return a page."""
        with urllib.request.urlopen(self.url + path, timeout=READY_S) as answer:
            body: bytes = answer.read()
        return body

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def viewers_share(console: Console, count: int) -> tuple[float, float, int]:
    """Let *count* viewers load the overview every `VIEW_S`; return CPU, seconds and pages."""
    pages: list[int] = []
    before_s, began_s = console.cpu_s(), time.monotonic()
    ends_s = began_s + VIEWED_S

    def view(number: int) -> None:
        due_s = began_s + VIEW_S * number / count
        while due_s < ends_s:
            time.sleep(max(0.0, due_s - time.monotonic()))
            console.get("/")
            pages.append(number)
            due_s += VIEW_S

    threads = [threading.Thread(target=view, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return console.cpu_s() - before_s, time.monotonic() - began_s, len(pages)


def search(console: Console, query: str) -> tuple[int, int, float, float]:
    """Search topic ``long`` and go on until its end; return pages, hits, CPU and the longest page in seconds."""
    go_on, longest_s, before_s, hits = "", 0.0, console.cpu_s(), 0
    for number in range(1, MAX_PAGES + 1):
        began_s = time.monotonic()
        words = {"q": query, **({"go_on": go_on} if go_on else {})}
        found: dict[str, Any] = json.loads(console.get(f"/api/topics/long/search?{urllib.parse.urlencode(words)}"))
        longest_s = max(longest_s, time.monotonic() - began_s)
        hits += len(found["records"])
        if found["next"] is None:
            return number, hits, console.cpu_s() - before_s, longest_s
        assert found["next"] != go_on, "a page of a search that came no further"
        go_on = found["next"]
    raise AssertionError(f"the search has not ended after {MAX_PAGES} pages")


def main() -> None:
    """Print one row a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        cluster = Connection(bootstrap=broker.bootstrap, timeout_s=READY_S)
        Admin(cluster).create_topic("long", partitions=4)
        with Producer(cluster) as producer:
            for number in range(options.records):
                producer.send("long", Message(b'{"page": "/%d", "user": "%09d"}' % (number % 97, number)))
        print("| figure | value |\n|---|--:|")
        console = Console(broker.bootstrap)
        try:
            print(f"| ready, s of CPU (and by the clock) | {console.ready_cpu_s:.2f} ({console.ready_s:.1f}) |")
            print(f"| memory after start, PSS, MB | {console.pss_mb():.0f} |")
            before_s = console.cpu_s()
            time.sleep(options.idle_s)
            share = (console.cpu_s() - before_s) / options.idle_s
            print(f"| nobody looks, share of a core over {options.idle_s:.0f} s | {share:.1%} |")
            console.get("/")
            cpu_s, seconds, pages = viewers_share(console, options.viewers)
            print(
                f"| {options.viewers} viewers, a page every {VIEW_S:.0f} s, share of a core | {cpu_s / seconds:.1%} |"
            )
            print(f"| ... CPU of one page, ms (pages) | {cpu_s / pages * 1000:.1f} ({pages:,}) |")
            pages, hits, cpu_s, longest_s = search(console, f"{options.records - 1:09d}")
            print(f"| search through {options.records:,} records, s of CPU (hits) | {cpu_s:.1f} ({hits}) |")
            print(f"| ... pages, and the longest by the clock, s | {pages}, {longest_s:.1f} |")
            print(f"| memory at the end, PSS, MB | {console.pss_mb():.0f} |")
        finally:
            console.stop()
        print(f"\nLoad of the machine: {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
