"""A program does not outlive a thread that it needs."""

import subprocess
import sys

PROGRAM = """
import threading, time
from pylog.daemon.threads import end_with_threads

end_with_threads()
threading.Thread(target=lambda: {what}, name="reader").start()
time.sleep(20)
"""


def test_a_program_ends_with_a_thread_that_a_bug_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(what="1 / 0")], capture_output=True, text=True, timeout=15, check=False
    )
    assert done.returncode == 1
    assert "reader" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "code=PYLOG-0001" in done.stderr
