"""How a command ends that could not do its work."""

from enum import IntEnum

from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3


class Failure(Exception):
    """An expected end without success, shown on stderr without a traceback.

    Args:
        what: what went wrong, in one clause.
        where: file, address, topic or option.
        found: what was there.
        wanted: what should have been there.
        next: the command or step that helps.
        exit_code: what the process ends with.
    """

    def __init__(
        self, what: str, *, where: str = "", found: str = "", wanted: str = "", next: str = "",
        exit_code: Exit = Exit.FAILED,
    ) -> None:
        super().__init__(what)
        self.exit_code = exit_code
        self._lines = {"where": where, "found": found, "wanted": wanted, "next": next}

    def __str__(self) -> str:
        lines = [f"error: {self.args[0]}"]
        lines += [f"  {name + ':':8}{text}" for name, text in self._lines.items() if text]
        return "\n".join(lines)


def failure_of(error: PylogError, bootstrap: str = "") -> Failure:
    """Return what the user is told about *error*.

    Args:
        error: what a part of pylog raised.
        bootstrap: where the cluster was looked for, if one was.
    """
    from pylog.client.connection import ClientError, Unreachable

    if isinstance(error, Unreachable):
        return Failure(
            "nobody answers", where=bootstrap, found=str(error), wanted="a broker that answers in time",
            next="check the address (--bootstrap, PYLOG_BOOTSTRAP) and, on its host, systemctl status 'pylog-broker@*'",
            exit_code=Exit.UNREACHABLE)
    if isinstance(error, ApiError):
        return Failure(
            _meaning(error.code), where=bootstrap, found=f"{error.code.name}: {error}", next=_NEXT.get(error.code, ""))
    if isinstance(error, ConfigError):
        return Failure("the configuration is wrong", found=str(error), next="correct it, then pylog config check FILE")
    if isinstance(error, ClientError):
        return Failure("the client library refuses", where=bootstrap, found=str(error),
                       next="check --property, and properties in the settings file")
    return Failure(str(error), where=bootstrap)


def _meaning(code: ErrorCode) -> str:
    return "the cluster refused: " + code.name.lower().removesuffix("_exception").replace("_", " ")


_NEXT = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "pylog topic list",
    ErrorCode.TOPIC_ALREADY_EXISTS: "pylog topic describe TOPIC",
    ErrorCode.GROUP_ID_NOT_FOUND: "pylog group list",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers; pylog group describe GROUP shows them",
    ErrorCode.OFFSET_OUT_OF_RANGE: "pylog topic describe TOPIC shows the offsets that are there",
    ErrorCode.INVALID_REPLICATION_FACTOR: "pylog cluster info shows how many brokers there are",
    ErrorCode.NOT_ENOUGH_REPLICAS: "pylog cluster health",
    ErrorCode.LEADER_NOT_AVAILABLE: "pylog cluster health",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "pylog cluster health",
    ErrorCode.KAFKA_STORAGE_ERROR: "pylog cluster health, then the broker's journal",
    ErrorCode.MESSAGE_TOO_LARGE: "pylog topic describe TOPIC shows max.message.bytes",
}
