"""Day-2 tasks for `fab`: `fab --list`, `fab status`, `fab logs --host live1 --unit pylog-broker@1`."""

from pylog.ops.tasks import logs, status

__all__ = ["logs", "status"]
