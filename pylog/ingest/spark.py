"""Starting Spark, and reading its errors."""

import os
import re
import sys
from pydoc import locate

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pylog.errors import ApiError, PylogError

DEFAULT_MASTER = "local[2]"

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
# Set by `spark-submit` for the program that it starts.

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
    return ours[-1][1] if ours else message.strip().splitlines()[0]


def error_of(message: str) -> PylogError:
    """Return our own error that Spark's *message* quotes, of its own class, so that its code is the same."""
    ours = _OURS.findall(message)
    kind = locate(ours[-1][0]) if ours else None
    if isinstance(kind, type) and issubclass(kind, PylogError) and not issubclass(kind, ApiError):
        return kind(cause_of(message))
    return PylogError(cause_of(message))
