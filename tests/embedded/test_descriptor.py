"""Open files: a node takes as many as it may, and not those that others in its process can only use."""

import resource
import subprocess
import sys
from pathlib import Path

from ottla.host.descriptor import allow_many
from ottla.host.disk import HostDisk
from ottla.log.log import Log, LogSettings
from ottla.wire.batch import build

_MANY_PARTITIONS = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
import ottla
from ottla.client import Producer
with ottla.Node() as node:
    node.create_topic("wide", 300)
    with Producer(node.bootstrap_servers) as producer:
        for partition in range(300):
            producer.send("wide", b"value", partition=partition)
print("written")
"""


def test_a_log_leaves_the_numbers_that_select_can_wait_for(tmp_path: Path) -> None:
    allow_many()
    path, batch = str(tmp_path / "log-0"), build([(1, None, b"there", [])])
    for _ in ("created", "opened"):
        log = Log.open(HostDisk(), path, LogSettings(), now_ms=1, clean=True)
        log.append(bytearray(batch), leader_epoch=0, now_ms=1)
        log.roll(1)
        descriptors = [segment.file.descriptor() for segment in log.segments]
        assert all(descriptor is not None and descriptor >= 1024 for descriptor in descriptors), descriptors
        assert b"there" in log.segments[0].file.read(1000, 0)
        log.close()


def test_there_is_room_for_many_files_before_there_are_threads() -> None:
    # With threads Linux waits 20 ms for all processors whenever the table grows.
    program = "from ottla.host.descriptor import allow_many; allow_many(); print(open('/proc/self/status').read())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    sizes = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(sizes["FDSize"]) >= (16_384 if hard == resource.RLIM_INFINITY else min(16_384, hard))


def test_a_node_has_more_partitions_than_a_shell_allows_open_files() -> None:
    done = subprocess.run([sys.executable, "-c", _MANY_PARTITIONS], capture_output=True, text=True, timeout=50)
    assert done.stdout == "written\n", done.stderr
