"""A PostgreSQL server for the tests that need one: the machine's own, in a temporary directory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.server import free_ports


def _programs() -> Path:
    """Where initdb and postgres are: Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "postgres").exists():
            return place
    pytest.fail("this test needs PostgreSQL: install it (Debian: apt-get install postgresql)")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A fresh server's address, `postgresql://...`."""
    programs = _programs()
    (port,) = free_ports(1)
    # PostgreSQL refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    directory = Path(tempfile.mkdtemp(prefix="ottla-postgresql-"))
    data = directory / "data"
    try:
        if user is not None:
            shutil.chown(directory, user)
        make = [str(programs / "initdb"), "-D", str(data), "-U", "ottla", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(make, check=True, timeout=120, user=user, cwd=directory, capture_output=True)
        control = [str(programs / "pg_ctl"), "-D", str(data), "-w", "-t", "60"]
        options = f"-p {port} -h 127.0.0.1 -k {directory} -c fsync=off -c max_prepared_transactions=10"
        start = [*control, "-l", str(directory / "log"), "-o", options, "start"]
        subprocess.run(start, check=True, timeout=120, user=user, cwd=directory, stdout=subprocess.DEVNULL)
        try:
            yield f"postgresql://ottla@127.0.0.1:{port}/postgres"
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, timeout=120, user=user, cwd=directory, stdout=subprocess.DEVNULL)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
