"""A node's metadata on a disk: format it, open it, stop it or let it crash."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from ottla.broker.endpoint import Endpoint
from ottla.broker.metadata import registration
from ottla.broker.metadata.format import format_directories
from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.controller.controller import NEWEST
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import random_uuid
from ottla.log.directory.store import Store
from ottla.log.setting import LogSettings
from ottla.settings.server.settings import ServerSettings
from ottla.sim.clock import SimClock
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from tests.controller.scene import SETTINGS

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class Place:
    """One node's directories on one disk. `node` opens it for a while."""

    def __init__(self, disk: Any, directory: str = "/data", *, seed: int = 1, **more: str) -> None:
        self.disk = disk
        self.rng = Random(seed)
        self.clock = SimClock()
        texts = SETTINGS | {"log.dirs": directory} | {name.replace("_", "."): value for name, value in more.items()}
        self.settings = ServerSettings.parse(texts)

    def format(self) -> list[str]:
        return format_directories(self.disk, self.settings, CLUSTER_ID, clock=self.clock, rng=self.rng, standalone=True)

    def start(self) -> tuple[Store, MetadataLog]:
        store = Store.open(
            self.disk,
            list(self.settings.log_dirs),
            node_id=self.settings.node_id,
            now_ms=self.clock.now_ms(),
            settings_of=lambda _: LogSettings(),
        )
        endpoint = Endpoint(1, "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, None)
        try:
            log = MetadataLog.open(self.disk, self.settings, store, self.clock, self.rng)
            directory_ids = [registration.directory_id(store, path) for path in store.directories]
            incarnation = random_uuid(self.rng)
            log.join(
                registration.broker_request(self.settings, incarnation, -1, store.cluster_id, directory_ids, [endpoint])
            )
        except BaseException:
            store.abandon()
            raise
        return store, log

    @contextmanager
    def node(self, *, crashes: bool = False) -> Iterator[MetadataLog]:
        """The metadata of a running node, which then stops cleanly or is killed."""
        store, log = self.start()
        try:
            yield log
        except BaseException:
            log.log.discard()
            store.abandon()
            raise
        if crashes:
            log.log.discard()
            store.abandon()
        else:
            log.close()
            store.close()
        log.image.validate()


def ask(log: MetadataLog, request: Any, version: int = NEWEST) -> Any:
    """The controller's answer, which comes at once while no loop runs; its KafkaError is raised."""
    answers: list[Any] = []
    log.ask(request, answers.append, version)
    [answer] = answers
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def allocate(log: MetadataLog) -> range:
    """A block of producer ids."""
    block = ask(log, AllocateProducerIdsRequest(broker_id=1, broker_epoch=log.broker_epoch))
    return range(block.producer_id_start, block.producer_id_start + block.producer_id_len)


def create(log: MetadataLog, *names: str, partitions: int = 1) -> list[int]:
    """Make topics; their error codes."""
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return [result.error_code for result in ask(log, CreateTopicsRequest(topics=topics)).topics]
