"""A controller-only node: it takes part in the quorum and hosts no partitions.

    process.roles=controller

It serves only the controllers' listeners. It locks its log directories, and has no logs in them but the metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.metadata_node import MetadataNode
from ottla.log.directory.directory import Directories, lock_directories
from ottla.metadata.image import Image

if TYPE_CHECKING:
    from ottla.broker.metadata.registration import LogDirectories


class ControllerNode(MetadataNode):
    """A node with only the controller role."""

    _directories: Directories

    @property
    def cluster_id(self) -> str:
        return self._directories.cluster_id

    def _take_directories(self) -> LogDirectories:
        settings = self.settings
        self._directories = lock_directories(self.disk, settings.log_dirs, self.node_id, settings.metadata_log_dir)
        self._undo.callback(self._directories.unlock)
        return self._directories

    def _begin(self) -> None:
        self._serve_controllers()
        self._follow(Image.empty(), self.quorum.image)
        self.quorum.subscribe(self._follow)
        self.quorum.start_threads(self.loop, self.pool)
        self._ready()

    def _follow(self, old: Image, new: Image) -> None:
        self.image = new
        self._follow_settings(old, new)
        self._follow_limits(old, new)
