"""Counts the rebalances of groups: all of them by cause, and those of the groups that rebalanced last."""

from collections.abc import Mapping

from pylog.group.state import Cause, Group
from pylog.metrics import Metrics, bounded_label

MAX_GROUPS = 200
"""Groups that are told apart, those that rebalanced last: a group that does it all the time is always among them."""


class Rebalances:
    """The rebalances that began while this broker coordinated the group."""

    def __init__(self, metrics: Metrics) -> None:
        """Show them in *metrics*."""
        help = "Rebalances of all groups coordinated here, by what began them."
        self._by_cause = {cause: metrics.counter("pylog_rebalances_total", help, cause=cause.value) for cause in Cause}
        self._by_group: dict[tuple[str], int] = {}
        metrics.table(
            "pylog_group_rebalances_total",
            "counter",
            f"Rebalances by group, of the {MAX_GROUPS} groups coordinated here that rebalanced last.",
            ("group",),
            self._rows,
        )

    def note(self, group: Group) -> None:
        """Count the rebalance of *group* that nobody has counted yet, if there is one."""
        cause = group.rebalances_for
        if cause is None:
            return
        group.rebalances_for = None
        self._by_cause[cause].value += 1
        row = (bounded_label(group.group_id),)
        # Taken out and put in again: the first of a dict is the one that was put in longest ago.
        self._by_group[row] = self._by_group.pop(row, 0) + 1
        if len(self._by_group) > MAX_GROUPS:
            del self._by_group[next(iter(self._by_group))]

    def _rows(self) -> Mapping[tuple[str], float]:
        return self._by_group
