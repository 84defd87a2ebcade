"""How a command ends that could not do its work."""

from pylog import faults
from pylog.errors import ApiError, PylogError, Unreachable
from pylog.faults import CATALOGUE, Exit, Fault

__all__ = ["Exit", "Failure", "failure_of", "without_spark"]


class Failure(Exception):
    """An expected end without success, shown on stderr without a traceback.

    Args:
        fault: its entry in the catalogue, which gives code, exit code, and the other texts where they are left out.
        what: what went wrong, in one clause.
        where: file, address, topic or option.
        found: what was there.
        wanted: what should have been there.
        next: the command or step that helps.
    """

    def __init__(
        self,
        fault: Fault,
        what: str = "",
        *,
        where: str = "",
        found: str = "",
        wanted: str = "",
        next: str = "",
    ) -> None:
        super().__init__(what or fault.what)
        self.fault = fault
        next_ = next or fault.remedy.replace("`", "")
        self._lines = {"where": where, "found": found, "wanted": wanted, "next": next_}

    @property
    def exit_code(self) -> Exit:
        """What the process ends with."""
        return self.fault.exit_code

    def __str__(self) -> str:
        lines = [f"error: {self.args[0]} [{self.fault.code}]"]
        lines += [f"  {name + ':':8}{text}" for name, text in self._lines.items() if text]
        return "\n".join(lines)


def failure_of(error: PylogError, bootstrap: str = "") -> Failure:
    """Return what the user is told about *error*.

    Args:
        error: what a part of pylog raised.
        bootstrap: where the cluster was looked for, if one was.
    """
    if isinstance(error, Unreachable):
        error = error.find_reason() or error
    fault = CATALOGUE[error.fault]
    if fault is faults.UNREACHABLE:
        return Failure(fault, where=bootstrap, found=str(error), wanted="a broker that answers in time")
    found = f"{error.code.name}: {error}" if isinstance(error, ApiError) else str(error)
    return Failure(fault, where=bootstrap, found=found)


def without_spark(error: ModuleNotFoundError) -> Failure:
    """Return what the user of a command that needs Spark is told where it is not installed."""
    return Failure(
        faults.PART_FAILED,
        "Spark is not installed in this environment",
        found=str(error),
        wanted="pyspark, pyarrow and numpy",
        next="run pylog of the host's Spark environment: /opt/pylog/spark/current/bin/pylog",
    )
