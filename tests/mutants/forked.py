"""Runs of pytest that begin as a fork of this process, with everything imported that no bug is planted in.

A run of a few quick tests is mostly imports: of pytest, Hypothesis, PyArrow and the standard library. Here they are
imported once. The product and the tests are imported by each run, from the copy of the tree.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

_PRELOADED = (
    "asyncio", "concurrent.futures", "ctypes", "decimal", "fractions", "http.client", "http.server", "json", "logging",
    "sqlite3", "ssl", "subprocess", "urllib.request", "uuid", "zoneinfo",
    "pytest", "_pytest.assertion.rewrite", "_pytest.python", "_pytest.runner", "_pytest.terminal",
    "hypothesis", "hypothesis.stateful", "hypothesis.strategies", "hypothesis.internal.conjecture.engine",
    "numpy", "pyarrow", "pyarrow.compute", "click", "click.testing", "cryptography.x509", "jwt",
)  # fmt: skip


def preload() -> None:
    """Import what the runs share. What is not installed here is left out."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def pytest_in(root: Path, tests: Iterable[str], limit: float) -> tuple[int | None, float, str]:
    """(exit code, or None after the limit; seconds; output) of these tests of the tree at `root`."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if not child:
            _run(root, list(tests), out.fileno())
        late = threading.Timer(limit, os.killpg, (child, signal.SIGKILL))
        late.start()
        try:
            _, status = os.waitpid(child, 0)
        finally:
            late.cancel()
            # The nodes that the tests started, too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        seconds = time.monotonic() - began
        code = None if seconds >= limit and os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
        out.seek(0)
        return code, seconds, out.read()


def _run(root: Path, tests: list[str], out: int) -> None:
    """The child: run the tests and end."""
    code = 70
    try:
        os.setsid()
        empty = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((empty, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        os.chdir(root)
        os.environ["PYTHONPATH"] = str(root)
        sys.path.insert(0, str(root))
        for name in [each for each in sys.modules if each.partition(".")[0] in ("ottla", "tests")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        import pytest

        command = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-m", "not interop and not long"]
        code = int(pytest.main([*command, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
