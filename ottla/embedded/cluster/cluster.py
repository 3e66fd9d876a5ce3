"""A cluster for a program or a test: it runs inside a `with` block.

with ottla.Cluster(nodes=3) as cluster:
    producer = ottla.client.Producer(cluster.bootstrap_servers, acks="all")
    cluster.kill(2)
    cluster.restart(2)
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.embedded.cluster.local import LocalCluster
from ottla.kernel.error import OttlaError
from ottla.settings.text import text_of_value


class Cluster:
    """`nodes` Ottla nodes on 127.0.0.1, each a process; all serve when `start` returns or the `with` block begins.

    `data`: the directory of the cluster (kept), or None for a temporary one. `controllers`: how many nodes vote in the
    metadata quorum (default: up to three, an odd number). `racks`: assigned to the nodes in turn. `settings`: any of
    Kafka's broker settings by Kafka's names, for every node, as text or as Python values.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        data: str | Path | None = None,
        controllers: int | None = None,
        racks: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._count = nodes
        self._data = data
        self._controllers = controllers
        self._racks = racks
        self._settings = {key: text_of_value(value) for key, value in (settings or {}).items()}
        self._temporary: str | None = None
        self._local: LocalCluster | None = None
        self._process = os.getpid()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all nodes for the clients' `bootstrap.servers`."""
        return self._made().plan.bootstrap_servers

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return tuple(each.node_id for each in self._made().plan.nodes)

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the running nodes, including paused ones."""
        return tuple(self._made().running())

    def address(self, node_id: int) -> str:
        """`host:port` of one node."""
        return self._made().plan.node(node_id).address

    def log(self, node_id: int) -> Path:
        """The log file of a node."""
        return self._made().log(node_id)

    # ---- life

    def start(self) -> Self:
        """Create the cluster unless its directory holds one, and start every node. OttlaError if one cannot start."""
        if self._data is None and self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="ottla-cluster-")
        directory = Path(self._data or self._temporary or "")
        self._process = os.getpid()
        atexit.register(self.close)
        try:
            if self._local is None and (directory / "cluster.json").exists():
                self._local = LocalCluster.open(directory)
            elif self._local is None:
                self._local = LocalCluster.create(
                    directory,
                    self._count,
                    controllers=self._controllers,
                    racks=self._racks,
                    settings=self._settings,
                )
            self._local.start()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop every node. The data is kept unless its directory is temporary."""
        if os.getpid() != self._process:
            # A fork of the process that started the cluster.
            return
        atexit.unregister(self.close)
        local, self._local = self._local, None
        try:
            if local is not None and self._temporary is not None:
                # The data is deleted, so a clean shutdown is not needed.
                for node_id in local.running():
                    local.kill(node_id)
            elif local is not None:
                local.stop()
        finally:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly (SIGTERM); its partitions move to other nodes first."""
        self._made().stop([node_id])

    def kill(self, node_id: int) -> None:
        """Kill a node's process (SIGKILL)."""
        self._made().kill(node_id)

    def restart(self, node_id: int) -> None:
        """Start a stopped or killed node; a running one is stopped cleanly first."""
        self._made().restart(node_id)

    def pause(self, node_id: int) -> None:
        """Suspend a node (SIGSTOP), like a machine that hangs; `resume` ends it."""
        self._made().pause(node_id)

    def resume(self, node_id: int) -> None:
        """Continue a paused node."""
        self._made().resume(node_id)

    def add_node(self, rack: str = "") -> int:
        """Start another broker and return its id. It gets partitions from new topics or reassignments."""
        local = self._made()
        node = local.add(rack)
        local.start([node.node_id])
        return node.node_id

    def grow(self, nodes: int = 3) -> tuple[int, ...]:
        """Grow to `nodes` nodes and spread the data, while the cluster serves; returns the new nodes' ids."""
        from ottla.embedded.cluster.change import grow

        return tuple(grow(self._made(), nodes))

    def roll(self) -> None:
        """Restart every node cleanly, one after another, while the cluster serves."""
        from ottla.embedded.cluster.change import roll

        roll(self._made())

    def _made(self) -> LocalCluster:
        if self._local is None:
            raise OttlaError("the cluster is not running; use `with ottla.Cluster() as cluster:` or call start()")
        return self._local

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._local is None:
            return "<ottla.Cluster, not running>"
        return f"<ottla.Cluster of nodes {', '.join(map(str, self.nodes))} on {self.bootstrap_servers}>"
