"""A cluster of one broker, for tests of the controller: commands go in, records are replayed, the image is checked."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from ottla.controller.activation import activation_records
from ottla.controller.broker import register_broker, unfence
from ottla.controller.controller import NEWEST, Controller
from ottla.kernel.ids import Uuid
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.feature import SUPPORTED, feature_records
from ottla.metadata.image import Image
from ottla.metadata.index import PartitionIndex
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.broker_registration import BrokerRegistrationRequest, Feature
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)

T = TypeVar("T")
CLUSTER_ID = "a-cluster"
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/data",
}


def server_settings(**more: str) -> ServerSettings:
    """Settings of one node; `num_partitions="3"` is num.partitions=3."""
    return ServerSettings.parse(SETTINGS | {name.replace("_", "."): value for name, value in more.items()})


def directory(number: int) -> Uuid:
    return Uuid(bytes([7]) * 15 + bytes([number]))


def registration(broker_id: int = 1, *, incarnation: int = 1, directories: int = 1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(bytes([broker_id]) * 15 + bytes([incarnation])),
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        rack=None,
        log_dirs=[directory(10 * broker_id + number) for number in range(directories)],
    )


class Cluster:
    """Its log is a list; every record was replayed, and every image was checked."""

    def __init__(
        self, *, brokers: int = 1, directories: int = 1, features: dict[str, int] | None = None, **settings: str
    ) -> None:
        self.settings = server_settings(**settings)
        self.now_ms = 1_000
        self.controller = Controller(self.settings, Random(7), CLUSTER_ID)
        self.fold = MetadataReplayer(Image.empty())
        self.index = PartitionIndex(self.image)
        self.log: list[Any] = []
        bootstrap = feature_records(features) if features else []
        self.append(activation_records(self.image, in_transaction=False, bootstrap=bootstrap, min_isr=1))
        self.controller.activate(self.image, self.now_ms)
        for broker_id in range(1, brokers + 1):
            request = registration(broker_id, directories=directories)
            self.append(register_broker(self.image, CLUSTER_ID, request, len(self.log)).records)
            self.append(unfence(self.image, broker_id, crashed=False))

    @property
    def image(self) -> Image:
        return self.fold.image

    def append(self, records: list[Any]) -> None:
        """Write and replay."""
        before = self.image
        for record in records:
            self.fold.replay(record, len(self.log), 1, 0)
            self.log.append(record)
        after = self.fold.publish(len(self.log) - 1, 1, 0)
        after.validate()
        check_step(before, after)
        self.index.follow(after)
        self.index.validate()

    def ask(self, request: Any, version: int = NEWEST) -> Any:
        """Let the controller decide, write what it decided, give its response."""
        decision = self.controller.handle(self.image, request, version, now_ms=self.now_ms)
        self.append(decision.records)
        return decision.response

    def create(
        self, name: str, *, configs: Mapping[str, str | None] | None = None, **fields: Any
    ) -> CreatableTopicResult:
        """Ask for one topic."""
        fields = {"num_partitions": -1, "replication_factor": -1} | fields
        topic = CreatableTopic(
            name=name,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
            **fields,
        )
        response = self.ask(CreateTopicsRequest(topics=[topic]))
        result: CreatableTopicResult = response.topics[0]
        return result


def ended(work: Generator[None, None, T], steps: list[int] | None = None) -> T:
    """What work in steps returns at its end; a step for each that it takes goes to `steps`."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if steps is not None:
            steps.append(len(steps))


def without_place(image: Image) -> Image:
    """The image without where it is from, to compare one of a snapshot with one of a log."""
    return replace(image, offset=0, epoch=0, timestamp=0)


def check_step(old: Image, new: Image) -> None:
    """What the last batch is not said to have touched is what it was."""
    topics = {name for name in (*old.topics, *new.topics) if old.topics.get(name) is not new.topics.get(name)}
    assert topics <= set(new.touched_topics(old))
    for kind, name in (*old.configs, *new.configs):
        if old.config(kind, name) != new.config(kind, name):
            assert name in new.changed_configs(old, kind)
