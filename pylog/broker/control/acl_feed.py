"""How a broker comes to the ACLs in the store: all of them once, then those that notices name.

Every broker reads for itself, as Kafka's do, so that it also hears of what Kafka's tools write.
"""

import logging
from collections.abc import Callable

from pylog.security.acl_nodes import change_numbers, missed_changes
from pylog.security.authorizer import AclNews
from pylog.security.rules import Rules
from pylog.store.base import Watch
from pylog.store.tree import ClusterTree

_logger = logging.getLogger(__name__)


class AclFeed:
    """See the module; only the agent's thread uses it."""

    def __init__(self, tree: ClusterTree, tell: Callable[[AclNews], None]) -> None:
        """Make it.

        Args:
            tree: the store.
            tell: takes all rules, or the entries of the patterns that changed.
        """
        self._tree = tree
        self._tell = tell
        self._seen: dict[str, int] | None = None

    def forget(self) -> None:
        """Read all again the next time: after a pause nobody knows which notices came and went."""
        self._seen = None

    def read(self, watch: Watch) -> None:
        """Read what is new, and have *watch* fire at the next notice."""
        seen = self._seen
        if seen is None:
            self._tree.prepare_acls()
        notices = self._tree.acl_changes(watch)  # first: what changes while we read is told by the next notice
        paths: list[str] | None = None if seen is None else []
        for root, names in notices.items():
            missed = None if seen is None else missed_changes(names, seen[root])
            if missed is None:
                paths = None
                break
            assert paths is not None
            paths += [f"{root}/{name}" for name in missed]
        patterns = None if paths is None else self._tree.changed_patterns(paths)
        if patterns is None:
            rules = Rules(self._tree.all_acls())
            _logger.info("acls_read patterns=%d", len(rules.acls))
            self._tell(rules)
        elif patterns:
            changes = self._tree.acls(patterns)
            _logger.info("acls_changed patterns=%d", len(changes))
            self._tell(changes)
        before = seen or {}
        self._seen = {root: max(change_numbers(names), default=before.get(root, -1)) for root, names in notices.items()}
