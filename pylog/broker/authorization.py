"""The authorizer of this broker: made of its settings, with metrics and the log of decisions."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pylog.broker.clock import wall_ms
from pylog.broker.decision_log import DecisionLog
from pylog.broker.denials import Denials
from pylog.broker.settings import REPORT, Value, typed
from pylog.broker.tasks import Tasks
from pylog.metrics import Metrics
from pylog.security.authorizer import Authorizer, Decision, Policy, parse_super_users

FLUSH_S = 10.0
"""How often repeated decisions are looked through for those that are due in the log."""

_NAME = "pylog_authorizer_denials_total"
_HELP = "Decisions against a client, by operation and type of resource; result is would_deny where nothing is refused."


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerSettings:
    """The settings of access control; see `pylog.broker.settings`."""

    authorizer_class_name: str
    authorizer_mode: str
    authorizer_log_allowed: bool
    super_users: str
    allow_everyone_if_no_acl_found: bool


class Authorization:
    """See the module.

    Attributes:
        authorizer: None if the settings name none; nothing is decided, counted or written down then.
    """

    def __init__(self, settings: Mapping[str, Value], metrics: Metrics, now_ms: Callable[[], int]) -> None:
        """Make it; *now_ms* is a steady clock."""
        own = typed(AuthorizerSettings, settings)
        self.authorizer: Authorizer | None = None
        self._metrics = metrics
        self._now_ms = now_ms
        self._log = DecisionLog(now_ms)
        self._denials = Denials()
        self._tasks = Tasks()
        if not own.authorizer_class_name:
            return
        metrics.declare(_NAME, "counter", _HELP)
        policy = Policy(
            parse_super_users(own.super_users), own.allow_everyone_if_no_acl_found, own.authorizer_mode == REPORT
        )
        self.authorizer = authorizer = Authorizer(policy, self._note, notes_allowed=own.authorizer_log_allowed)
        metrics.gauge("pylog_acls", "ACLs that this broker decides by.", read=lambda: authorizer.rules.entry_count)
        metrics.gauge(
            "pylog_authorizer_enforces",
            "1 where denied requests are refused, 0 where they are only reported.",
            read=lambda: not authorizer.policy.is_report_only,
        )

    def start(self) -> None:
        """Begin to write repeated decisions down."""
        if self.authorizer is not None:
            self._tasks.spawn(self._flush_forever())

    def report(self) -> dict[str, Any]:
        """Return what ``GET /rights`` says of decisions: ``mode`` is off, report or enforce."""
        mode = "off"
        if self.authorizer is not None:
            mode = "report" if self.authorizer.policy.is_report_only else "enforce"
        return {"mode": mode, **self._denials.report()}

    async def stop(self) -> None:
        """Write down what was only counted."""
        await self._tasks.stop()
        self._log.flush(self._now_ms(), is_end=True)

    def _note(self, decision: Decision) -> None:
        assert self.authorizer is not None
        is_report_only = self.authorizer.policy.is_report_only
        if not decision.is_allowed:
            self._metrics.counter(
                _NAME,
                _HELP,
                operation=decision.operation.name.lower(),
                resource=decision.resource_type.name.lower(),
                result="would_deny" if is_report_only else "denied",
            ).value += 1
            self._denials.note(decision, wall_ms())
        self._log.note(decision, is_report_only=is_report_only)

    async def _flush_forever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._log.flush(self._now_ms())
