"""Starting Spark, and reading its errors."""

import os
import re
import sys
import time
from pydoc import locate

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pylog.errors import ApiError, PylogError

DEFAULT_MASTER = "local[2]"

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
# Set by `spark-submit` for the program that it starts.

_QUIET_S = 1.0
# Executors of a cluster register within some tenths of a second of each other.
_PATIENCE_S = 30.0
# As long as Spark itself waits for executors where it knows how many there will be.
_LOOK_S = 0.1

_OURS = re.compile(r"^(pylog\.[\w.]+): (.+)$", re.MULTILINE)
# The last line of a traceback of ours, which Spark quotes in the middle of its own.


def context(master: str | None, name: str = "pylog-ingest") -> SparkContext:
    """Return this process's Spark, started if need be; SQL is not, which takes longer than all the rest.

    Args:
        master: Spark's; None for that of ``spark-submit``, and `DEFAULT_MASTER` without it.
        name: of the application.
    """
    found = SparkContext.getOrCreate(_conf(master, name))
    found.setLogLevel("ERROR")
    return found


def session(master: str | None, name: str = "pylog-ingest") -> SparkSession:
    """Return a session for DataFrames on this process's Spark."""
    context(master, name)
    return (
        SparkSession.builder.config("spark.sql.session.timeZone", "UTC")
        # Spark's default, INT96, is deprecated and carries no unit; readers see timestamp[us, UTC] this way.
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )


class Arrivals:
    """Decides when the executors of a cluster are there: only that no more come tells how many there are.

    Args:
        now_s: when the wait begins, in seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = self._changed_s = now_s
        self._count = 0

    def is_over(self, count: int, now_s: float) -> bool:
        """Note how many executors are there; return whether the wait is over."""
        if count != self._count:
            self._count, self._changed_s = count, now_s
        if count:
            return now_s - self._changed_s >= _QUIET_S
        return now_s - self._began_s >= _PATIENCE_S


def wait_for_executors(spark: SparkContext) -> None:
    """Return once a cluster's executors are there; before, Spark says that it runs two tasks at once.

    There is nothing to wait for where tasks run in this process, or where executors come only when tasks want them.
    """
    if str(spark.master).startswith("local") or spark.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    arrivals = Arrivals(time.monotonic())
    # Spark counts the driver as well.
    while not arrivals.is_over(spark._jsc.sc().getExecutorMemoryStatus().size() - 1, time.monotonic()):
        time.sleep(_LOOK_S)


def _conf(master: str | None, name: str) -> SparkConf:
    # Tasks must run this interpreter, where pylog is installed, and not whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name).set("spark.ui.showConsoleProgress", "false")
    if _SUBMITTED in os.environ:
        # Its JVM runs already, with the settings of its command line: what we set would overrule them.
        return conf if master is None else conf.setMaster(master)
    master = master or DEFAULT_MASTER
    conf.setMaster(master).set("spark.ui.enabled", str("PYLOG_SPARK_UI" in os.environ).lower())
    if master.startswith("local"):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
        # A run is short, and the compiler takes most of it: the first tier alone is enough to schedule tasks.
        conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")
    return conf


def cause_of(message: str) -> str:
    """Return our own error that Spark's *message* quotes, or its first line."""
    ours = _OURS.findall(message)
    if ours:
        return str(ours[-1][1])
    lines = message.strip().splitlines()
    # Py4J begins with the name of the method that it called, which says nothing to a user.
    called = len(lines) > 1 and lines[0].startswith("An error occurred while calling ")
    return lines[1].removeprefix(": ") if called else lines[0]


def error_of(message: str) -> PylogError:
    """Return our own error that Spark's *message* quotes, of its own class, so that its code is the same."""
    ours = _OURS.findall(message)
    kind = locate(ours[-1][0]) if ours else None
    if isinstance(kind, type) and issubclass(kind, PylogError) and not issubclass(kind, ApiError):
        return kind(cause_of(message))
    return PylogError(cause_of(message))
