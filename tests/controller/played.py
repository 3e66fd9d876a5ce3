"""Scenes of the controller (`tests/play.py`): `python -m tests.controller.played --rewrite` writes the traces down.

A partition is TOPIC-N. The trace has each record that is written, the answer, and the partitions that changed. The
commands of a file of `tests/controller/scenes`:

    brokers COUNT [directories=N] [NAME=VALUE ...]   the first command: registered and unfenced; settings, levels
    topic NAME 1,2,3 ... [min.insync.replicas=2 ...]      a topic with these replicas of its partitions
    set TOPIC NAME=VALUE, set broker N NAME=VALUE
    alter PARTITION 1,2 [asks=N] [FIELD=VALUE ...] [epochs=N:EPOCH,...]   the leader, or N, wants this ISR
    elect PARTITION preferred|unclean
    move PARTITION 3,4     move PARTITION cancel
    beat N [behind] [fence] [stop] [offline=D,...]   a heartbeat; directory D of broker N is 10 * N + D
    register N [unclean] [without=D,...]    a new life of the broker registers
    silence N ...          until they are fenced
    wait MS
    assign N PARTITION D   the replica of broker N lies in its directory D
    ids N [stale]          a block of producer ids
    failover               another controller takes over
    state                  brokers and partitions
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.image import BROKER, NO_LEADER, TOPIC, PartitionImage
from ottla.wire.api import alter_partition_reassignments as reassign
from ottla.wire.api import assign_replicas_to_dirs as assign
from ottla.wire.api import elect_leaders, incremental_alter_configs
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.alter_partition import BrokerState
from tests import play
from tests.controller.fleet import Fleet
from tests.controller.scene import directory

FOLDER = Path(__file__).parent / "scenes"
#: Told in another way, or the same in all scenes.
_UNTOLD = ("topic_id", "partition_id", "features", "rack")
_KINDS = {"preferred": 0, "unclean": 1}


def _split(words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], named


def _ids(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _place(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def _error(code: int) -> str:
    return ErrorCode(code).name


class Scene(play.Scene):
    """A fleet of brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(0)
        self.told = len(self.fleet.log)
        self.known: dict[tuple[str, int], PartitionImage] = {}

    def run(self, command: str) -> list[str]:
        answers = super().run(command)
        records = [f"  {self._record(each)}" for each in self.fleet.log[self.told :]]
        self.told = len(self.fleet.log)
        changed = [f"{words}" for key, words in self._changed()]
        return [*records, *answers, *changed]

    def _changed(self) -> list[tuple[tuple[str, int], str]]:
        now = {
            (name, index): partition
            for name, topic in self.fleet.image.topics.items()
            for index, partition in enumerate(topic.partitions)
        }
        found = [(key, self._partition(key)) for key, each in now.items() if self.known.get(key) != each]
        self.known = now
        return found

    # ---- commands

    def do_brokers(self, count: str, *words: str) -> None:
        _, named = _split(words)
        directories = int(named.pop("directories", 1))
        features = {name: int(named.pop(name)) for name in list(named) if name.endswith(".version")}
        settings = {name.replace(".", "_"): value for name, value in named.items()}
        self.fleet = Fleet(int(count), directories=directories, features=features or None, **settings)
        self.told, self.known = len(self.fleet.log), {}

    def do_topic(self, name: str, *words: str) -> None:
        replicas, configs = _split(words)
        self.fleet.topic(name, *map(_ids, replicas), configs=dict(configs))

    def do_set(self, *words: str) -> None:
        kind = BROKER if words[0] == "broker" else TOPIC
        name, (_, named) = words[-2], _split(words[-1:])
        configs = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=0, value=value)
            for key, value in named.items()
        ]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        answer = self._ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]))
        self._says(answer.responses[0].error_code)

    def do_alter(self, partition: str, isr: str, *words: str) -> None:
        name, index = _place(partition)
        _, named = _split(words)
        asks = int(named.pop("asks")) if "asks" in named else None
        fields: dict[str, Any] = {}
        if "epochs" in named:
            pairs = [each.split(":") for each in named.pop("epochs").split(",")]
            fields["new_isr_with_epochs"] = [BrokerState(broker_id=int(a), broker_epoch=int(b)) for a, b in pairs]
        fields |= {key.replace("-", "_"): int(value) for key, value in named.items()}
        try:
            answer = self.fleet.alter(name, _ids(isr), index=index, asks=asks, **fields)
        except KafkaError as error:
            self.lines.append(f"told {error.code.name}")
            return
        if answer.error_code:
            self._says(answer.error_code)
        else:
            epochs = f"leader epoch {answer.leader_epoch}, partition epoch {answer.partition_epoch}"
            self.lines.append(f"told ISR {_words(answer.isr)}, {epochs}")

    def do_elect(self, partition: str, kind: str) -> None:
        name, index = _place(partition)
        asked = [elect_leaders.TopicPartitions(topic=name, partitions=[index])]
        request = elect_leaders.ElectLeadersRequest(election_type=_KINDS[kind], topic_partitions=asked, timeout_ms=1000)
        self._says(self._ask(request).replica_election_results[0].partition_result[0].error_code)

    def do_move(self, partition: str, replicas: str) -> None:
        name, index = _place(partition)
        wanted = None if replicas == "cancel" else _ids(replicas)
        one = reassign.ReassignablePartition(partition_index=index, replicas=wanted)
        topics = [reassign.ReassignableTopic(name=name, partitions=[one])]
        answer = self._ask(reassign.AlterPartitionReassignmentsRequest(topics=topics))
        self._says(answer.responses[0].partitions[0].error_code)

    def do_beat(self, broker_id: str, *words: str) -> None:
        number = int(broker_id)
        _, named = _split(words)
        fields: dict[str, Any] = {"want_fence": "fence" in words, "want_shut_down": "stop" in words}
        if "offline" in named:
            fields["offline_log_dirs"] = [directory(10 * number + each) for each in _ids(named["offline"])]
        offset = self.fleet.image.brokers[number].epoch - 1 if "behind" in words else None
        answer = self.fleet.beat(number, offset=offset, **fields)
        state = "fenced" if answer.is_fenced else "unfenced"
        stops = ", may stop" if answer.should_shut_down else ""
        late = "" if answer.is_caught_up else ", not caught up"
        self.lines.append(f"told {state}{late}{stops}")

    def do_register(self, broker_id: str, *words: str) -> None:
        number = int(broker_id)
        _, named = _split(words)
        fields: dict[str, Any] = {}
        if "without" in named:
            gone = _ids(named["without"])
            left = [each for each in range(self.fleet.directories) if each not in gone]
            fields["log_dirs"] = [directory(10 * number + each) for each in left]
        try:
            epoch = self.fleet.register(number, clean="unclean" not in words, **fields)
        except KafkaError as error:
            self.lines.append(f"told {error.code.name}")
            return
        self.lines.append(f"told broker epoch {epoch}")

    def do_silence(self, *broker_ids: str) -> None:
        self.fleet.silence(*map(int, broker_ids))

    def do_wait(self, ms: str) -> None:
        self.fleet.wait(int(ms))

    def do_assign(self, broker_id: str, partition: str, number: str) -> None:
        name, index = _place(partition)
        fleet = self.fleet
        topic = assign.RequestTopicData(
            topic_id=fleet.image.topics[name].topic_id, partitions=[assign.RequestPartitionData(partition_index=index)]
        )
        place = assign.RequestDirectoryData(id=directory(10 * int(broker_id) + int(number)), topics=[topic])
        request = assign.AssignReplicasToDirsRequest(
            broker_id=int(broker_id), broker_epoch=fleet.image.brokers[int(broker_id)].epoch, directories=[place]
        )
        answer = self._ask(request)
        self._says(answer.directories[0].topics[0].partitions[0].error_code)

    def do_ids(self, broker_id: str, stale: str = "") -> None:
        epoch = self.fleet.image.brokers[int(broker_id)].epoch - bool(stale)
        try:
            block = self._ask(AllocateProducerIdsRequest(broker_id=int(broker_id), broker_epoch=epoch))
        except KafkaError as error:
            self.lines.append(f"told {error.code.name}")
            return
        self.lines.append(f"told {block.producer_id_len} ids from {block.producer_id_start}")

    def do_failover(self) -> None:
        self.fleet.controller.activate(self.fleet.image, self.fleet.now_ms)

    def do_state(self) -> None:
        for broker_id, broker in sorted(self.fleet.image.brokers.items()):
            state = "fenced" if broker.fenced else "unfenced"
            stops = ", on its way out" if broker.in_controlled_shutdown else ""
            self.lines.append(f"broker {broker_id}, epoch {broker.epoch}, {state}{stops}")
        self.lines += [self._partition(key) for key in self.known]

    # ---- words

    def _ask(self, request: Any) -> Any:
        return self.fleet.ask(request)

    def _says(self, code: int) -> None:
        self.lines.append(f"told {_error(code)}")

    def _partition(self, key: tuple[str, int]) -> str:
        name, index = key
        each = self.fleet.image.topics[name].partitions[index]
        leader = "no leader" if each.leader == NO_LEADER else f"leader {each.leader}"
        parts = [
            f"{name}-{index}: {leader} in epoch {each.leader_epoch}",
            f"partition epoch {each.partition_epoch}",
            f"replicas {_words(each.replicas)}",
            f"ISR {_words(each.isr) or 'empty'}",
        ]
        for words, ids in (
            ("ELR", each.eligible_leader_replicas),
            ("last known", each.last_known_elr),
            ("adding", each.adding_replicas),
            ("removing", each.removing_replicas),
        ):
            if ids:
                parts.append(f"{words} {_words(ids)}")
        if each.leader_recovery_state:
            parts.append("recovering")
        return ", ".join(parts)

    def _record(self, record: Any) -> str:
        kind = type(record)
        plain = kind()
        fields = []
        for name in kind.__slots__:
            if name in _UNTOLD:
                continue
            value = getattr(record, name)
            if value != getattr(plain, name):
                fields.append(f"{name} {self._value(name, value)}")
        what = kind.__name__.removesuffix("Record")
        if hasattr(record, "partition_id"):
            what += f" {self._value('topic_id', record.topic_id)}-{record.partition_id}"
        return f"{what}: {', '.join(fields)}"

    def _value(self, name: str, value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{' '.join(self._value(name, each) for each in value)}]"
        if name == "topic_id":
            names = [topic for topic, each in self.fleet.image.topics.items() if each.topic_id == value]
            return names[0] if names else "?"
        if isinstance(value, bytes):
            return _directory(value)
        return str(value)


def _directory(value: bytes) -> str:
    kinds = {bytes(15) + bytes([number]): word for number, word in ((0, "migrating"), (1, "unassigned"), (2, "lost"))}
    return kinds.get(bytes(value), str(value[-1]))


def _words(ids: Any) -> str:
    return " ".join(map(str, ids))


if __name__ == "__main__":
    sys.exit(play.main(FOLDER, Scene))
