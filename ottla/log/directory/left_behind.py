"""The names of logs and complete copies that must not be taken for the log of a partition, which has gone on elsewhere.

Rules:
- A log, or a copy that is marked, may stay where a move has ended because its disk fails, and the metadata may name a
  directory that a move never reached. If the disk that has the log is away at a start, nothing else tells that the
  latest records are there.
- So a file beside the metadata log, without which no node starts, has the names, each with the id of its directory.
- A name is forgotten before a new log has it, and by a start that finds the log.
"""

import logging
from collections.abc import Mapping
from threading import Lock

from ottla.kernel.ids import NO_UUID, Uuid, parse_uuid, uuid_text
from ottla.kernel.ports import Disk
from ottla.log import checkpoint

_log = logging.getLogger("ottla.log")
_FILE = "left-behind-checkpoint"


class LeftBehind:
    """The names of one node. May be used on any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._path = ""
        #: (directory id, name) -> topic id
        self._names: dict[tuple[str, str], Uuid] = {}
        self._lock = Lock()

    def read(self, directory: str) -> None:
        """Read the file in the metadata log's directory. A failure is only logged, as in `add`."""
        self._path = f"{directory}/{_FILE}"
        try:
            text = checkpoint.read_text(self._disk, self._path)
            lines = [] if text is None else checkpoint.decode_lines(text, self._path)
            self._names = {(where, name): parse_uuid(topic_id) for where, name, topic_id in lines}
        except (OSError, ValueError) as error:
            _log.error("cannot read which logs are not the latest of their partitions: %s: %s", self._path, error)

    def has(self, directory_id: str, name: str, topic_id: Uuid) -> bool:
        """Whether this must not be taken for the log of its partition."""
        noted = self._names.get((directory_id, name))
        return noted is not None and (noted == topic_id or NO_UUID in (noted, topic_id))

    def names(self) -> list[tuple[str, str, Uuid]]:
        """(directory id, name, topic id) of each."""
        return [(where, name, topic_id) for (where, name), topic_id in self._names.items()]

    def add(self, directory_id: str, names: Mapping[str, Uuid]) -> None:
        """Note names and their topic ids, durably. A failure is only logged: it matters if another disk fails, too."""
        new = {(directory_id, name): topic_id for name, topic_id in names.items()}
        # A directory without an id cannot be told from another.
        if directory_id and self._path and new:
            with self._lock:
                try:
                    self._replace(self._names | new)
                except OSError as error:
                    _log.error("cannot note in %s which logs are not the latest: %s", self._path, error)

    def forget(self, directory_id: str, name: str) -> None:
        """Forget a name, durably. Raises OSError if that fails."""
        if (directory_id, name) in self._names:
            with self._lock:
                self._replace({each: of for each, of in self._names.items() if each != (directory_id, name)})

    def _replace(self, names: dict[tuple[str, str], Uuid]) -> None:
        lines = sorted(f"{where} {name} {uuid_text(topic_id)}" for (where, name), topic_id in names.items())
        checkpoint.write_text(self._disk, self._path, checkpoint.encode_lines(lines))
        self._names = names
