"""What every part of a node runs on: its loop, its ports, and the settings and metadata in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from ottla.kernel.ports import Clock, Rng
from ottla.log.directory.directory import LockingDisk
from ottla.metadata.image import Image
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.net.outbound import Outbound
    from ottla.net.peer import Peer

_log = logging.getLogger("ottla.broker")
#: Opens a connection to another broker; the caller closes it.
Dial = Callable[["Peer"], "Outbound"]


class Runtime:
    """A part of a node takes this and the other parts that it uses, never the node itself.

    `settings` and `image` are replaced whenever the metadata changes, so read them from here each time.
    """

    def __init__(
        self,
        settings: ServerSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        disk: LockingDisk,
        clock: Clock,
        rng: Rng,
        pool: Executor,
    ) -> None:
        self.node_id = settings.node_id
        self.loop = loop
        self.disk = disk
        self.clock = clock
        self.rng = rng
        #: Threads for work that would block the loop.
        self.pool = pool
        #: The settings in force: the dynamic settings in the metadata take precedence over the file.
        self.settings = settings
        #: The newest committed metadata that the node has applied.
        self.image = Image.empty()
        #: Called when the node cannot go on, such as after a disk failure; its owner replaces this and stops the node.
        self.on_failure: Callable[[str], None] = lambda why: _log.critical("%s", why)
        #: True once the node is closed: nothing starts any more.
        self.closed = False
