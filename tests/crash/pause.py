"""The one place where time passes in the crash tests: another process is at work, and tells nothing.

Tests call none of this; the loads and kills do, between two looks at a process or until its random moment of death.
"""

import time


def pause(seconds: float) -> None:
    """Let so much time pass."""
    time.sleep(seconds)
