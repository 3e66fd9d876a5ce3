"""An actor of a wide history: an instance of a Kafka Streams application, whose changelog the node makes."""

from __future__ import annotations

from ottla.sim.machine import Machine
from ottla.wire.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.sim.actor import Actor, Ask, Script
from tests.sim.client import offset_commit

CHANGELOG = "instance-changelog"
_PAUSE_MS_MAX = 400


class Instance(Actor):
    """A member of a streams group that heartbeats, and commits in the epoch that it has once it has tasks."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.group = name
        self.committed = -1
        self.maybe: int | None = None
        self.epoch = 0
        self.tasks: list[TaskIds] = []

    def script(self) -> Script:
        part = Subtopology(
            subtopology_id="0", source_topics=[self.topic], state_changelog_topics=[TopicInfo(name=CHANGELOG)]
        )
        topology = Topology(subtopologies=[part])
        while not self.ending:
            joins = not self.epoch
            answer = yield Ask(
                StreamsGroupHeartbeatRequest(
                    group_id=self.group,
                    member_id=f"member-{self.name}",
                    member_epoch=self.epoch,
                    rebalance_timeout_ms=60_000 if joins else -1,
                    topology=topology if joins else None,
                    active_tasks=self.tasks,
                    standby_tasks=[],
                    warmup_tasks=[],
                    process_id="process",
                ),
                0,
            )
            assert answer.error_code == 0, f"{self.name}: {answer}"
            assert answer.member_epoch >= self.epoch, f"{self.name}: its epoch went back"
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                assert len(answer.active_tasks) >= len(self.tasks), f"{self.name} lost tasks that nobody else wants"
                self.tasks = answer.active_tasks
            if self.tasks:
                self.maybe = self.committed + 1
                answer = yield offset_commit(self.group, self.topic, self.maybe, f"member-{self.name}", self.epoch)
                assert answer.error_code == 0, f"{self.name}: {answer}"
                self.committed, self.maybe = self.maybe, None
            yield self.random.randrange(_PAUSE_MS_MAX)
