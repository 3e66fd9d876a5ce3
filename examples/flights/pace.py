"""The program's progress: its tasks' figures, and whether all input is processed."""

import contextlib
from dataclasses import dataclass

from examples.streams_flights import CHANGED
from ottla.client import Admin, OffsetSpec
from ottla.spark.streams.handle import Handle
from ottla.spark.streams.query import NotReadable


@dataclass(slots=True)
class Part:
    """A sub-topology, summed over its tasks."""

    reads: str
    processed: int = 0
    waiting: int = 0
    dropped: int = 0
    #: Seconds spent in the program's functions.
    busy_s: float = 0.0
    commits: int = 0
    #: The newest time of its records, in ms since 1970.
    seen_ms: int = 0


class Pace:
    """The program's parts, in order. `look` reads the tasks' latest figures."""

    def __init__(self, running: Handle, bootstrap_servers: str) -> None:
        self.running = running
        self._admin = Admin(bootstrap_servers)
        application = running.program.application_id
        self._topics: dict[int, str] = {}
        for task in running.program.tasks:
            names = dict.fromkeys(place.topic.removeprefix(f"{application}-") for place in task.sources)
            self._topics[task.subtopology] = " + ".join(name.removesuffix("-repartition") for name in names)
        self.parts: dict[int, Part] = {}
        self.look()

    @property
    def dropped(self) -> int:
        """Records that came too late for their windows."""
        return sum(part.dropped for part in self.parts.values())

    def look(self) -> None:
        """Read the tasks' figures. Raises the error that ended the program, if it has ended."""
        if self.running.await_termination(0):
            raise RuntimeError("the program has ended")
        parts = {number: Part(reads) for number, reads in sorted(self._topics.items())}
        for name, told in self.running.tasks.copy().items():
            part = parts[int(name.partition("_")[0])]
            part.processed += told["processed"]
            part.waiting += told["lag"]
            part.dropped += told["dropped"]
            part.busy_s += told["process_s"]
            part.commits += told["commits"]
            part.seen_ms = max(part.seen_ms, int((told["stream_time_s"] or 0) * 1000))
        self.parts = parts

    def drain(self) -> None:
        """Wait until all records in the topics, and those that follow from them, are processed.

        Results are emitted periodically: when all input is processed, some may still be in the stores `CHANGED`, and
        after that on their way to the ranking.
        """
        while not (self._is_drained() and self._all_told() and self._is_drained()):
            self.running.await_termination(0.2)

    def _all_told(self) -> bool:
        with contextlib.suppress(NotReadable):
            return not any(entry for name in CHANGED for entry in self.running.store(name).all())
        return False

    def _is_drained(self) -> bool:
        """Whether the group has committed the end of every partition.

        All commits are read before all ends: if an end equals an older commit, nothing more was on its way, since the
        outputs and offsets of a step are one transaction.
        """
        committed = self._admin.list_group_offsets(self.running.program.application_id)
        places = [place for task in self.running.program.tasks for place in task.sources]
        ends = self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST)).check()
        return all(place in committed and committed[place].offset == end.offset for place, end in ends.items())

    def close(self) -> None:
        self._admin.close()
