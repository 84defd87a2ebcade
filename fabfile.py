"""Day-2 tasks for `fab`: `fab --list`, `fab status`, `fab logs --host live1`, `fab bundle`, `fab drill --name T1`."""

from pylog.ops.tasks import bundle, drill, drills, logs, status

__all__ = ["bundle", "drill", "drills", "logs", "status"]
