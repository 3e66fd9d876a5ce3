"""Memory that NumPy frees stays with the process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

_FAULTS = """
import resource
import numpy as np
{before}
def use():
    for _ in range(8):
        blocks = [np.ones(1 << 20, dtype=np.uint8) for _ in range(4)]
        del blocks
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_used_again() -> None:
    keep = "from ottla.columns.sparse import keep_freed_memory; keep_freed_memory()"
    own = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    without, kept = (
        int(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
        for code in (_FAULTS.format(before=before) for before in ("", keep))
    )
    if platform.libc_ver()[0] == "glibc":
        assert kept < without / 4
    else:
        assert kept <= 2 * without
