"""Random requests of random brokers, by seed."""

from random import Random

from ottla.kernel.error import ErrorCode
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from tests.interop.controller.fleet import Fleet

BROKERS = range(1, 6)
_STEPS = {
    "alter": 30,
    "beat": 10,
    "rejoin": 8,
    "fence": 5,
    "stop": 6,
    "elect": 8,
    "move": 10,
    "cancel": 3,
    "create": 6,
    "configure": 4,
    "assign": 5,
    "fail_directory": 2,
    "restart": 3,
    "delete": 1,
    "unregister": 1,
    "producer_ids": 1,
}


class History:
    """One seed's requests to both controllers."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.rng = Random(seed)
        self.topics: list[str] = []
        self._made = 0

    def run(self, steps: int) -> None:
        """Some brokers, then steps by chance."""
        self.fleet.start(*BROKERS)
        for _ in range(3):
            self.create()
        for _ in range(steps):
            self.fleet.tend()
            [step] = self.rng.choices([*_STEPS], [*_STEPS.values()])
            getattr(self, step)()
            for name in self.fleet.duel.dropped():
                self._delete(name.removesuffix(f"-{self.fleet.first}"))

    # ---- steps

    def alter(self) -> None:
        """Mostly what a leader would do, sometimes not."""
        topic, index = self._partition()
        if topic is None:
            return
        fleet, rng = self.fleet, self.rng
        partition = fleet.partition(topic, index)
        leader = partition.leader - fleet.first
        replicas = [each - fleet.first for each in partition.replicas]
        isr = [each for each in replicas if each == leader or rng.random() < 0.7]
        more: dict[str, int] = {}
        if rng.random() < 0.1:
            field = rng.choice(["leader_epoch", "partition_epoch"])
            more[field] = getattr(partition, field) + rng.choice([-1, 1])
        if rng.random() < 0.1:
            more["leader_recovery_state"] = 1
        if partition.leader < 0 or rng.random() < 0.05:
            more["asks"] = fleet.broker(rng.choice(BROKERS))
        if rng.random() < 0.05:
            isr = [*isr, rng.choice(BROKERS)]
        fleet.alter(topic, isr, index=index, version=rng.choice([2, 3]), **more)

    def beat(self) -> None:
        number = self._number()
        offset = self.fleet.duel.image.offset - self.rng.choice([0, 0, 0, 1, 3, 30])
        self.fleet.beat(number, offset=offset)

    def rejoin(self) -> None:
        """Those that are fenced come back."""
        for number in BROKERS:
            broker = self.fleet.duel.image.brokers.get(self.fleet.broker(number))
            if broker is None:
                self.fleet.register(number)
            self.fleet.beat(number)

    def fence(self) -> None:
        self.fleet.beat(self._number(), want_fence=True)

    def stop(self) -> None:
        self.fleet.beat(self._number(), want_shut_down=True, want_fence=self.rng.random() < 0.1)

    def restart(self) -> None:
        """A broker is silent until it is fenced, and registers again."""
        number = self._number()
        if self.fleet.broker(number) in self.fleet.duel.image.brokers:
            self.fleet.die(number)
            self.fleet.await_fenced(number)
        self.fleet.register(number, clean=self.rng.random() < 0.5, version=self.rng.choice([2, 3, 4]))
        if self.rng.random() < 0.8:
            self.fleet.beat(number)

    def elect(self) -> None:
        topic, index = self._partition()
        if topic is not None:
            self.fleet.elect(topic, self.rng.randrange(2), index)

    def move(self) -> None:
        topic, index = self._partition()
        if topic is not None:
            replicas = self.rng.sample(BROKERS, self.rng.randrange(1, 5))
            self.fleet.move(topic, replicas, index=index, allow_replication_factor_change=self.rng.random() < 0.8)

    def cancel(self) -> None:
        topic, index = self._partition()
        if topic is not None:
            self.fleet.move(topic, None, index=index)

    def create(self) -> None:
        self._made += 1
        rng, topic = self.rng, f"topic-{self._made}"
        factor = rng.randrange(1, 5)
        replicas = [rng.sample(BROKERS, factor) for _ in range(rng.randrange(1, 4))]
        configs = {"min_insync_replicas": str(rng.randrange(1, 4))} if rng.random() < 0.7 else {}
        if rng.random() < 0.3:
            configs["unclean_leader_election_enable"] = "true"
        answer = self.fleet.create(topic, *replicas, **configs)
        if not isinstance(answer, ErrorCode) and not answer.topics[0].error_code:
            self.topics.append(topic)

    def configure(self) -> None:
        topic, _ = self._partition()
        if topic is None:
            return
        partitions = self.fleet.duel.image.topics[self.fleet.name(topic)].partitions
        # Apache's index of eligible leaders forgets nothing when ClearElr comes: it then looks at partitions that a
        # broker no longer concerns, and may elect a leader there a little earlier.
        if self.rng.random() < 0.6 and not any(each.eligible_leader_replicas for each in partitions):
            self.fleet.configure(topic, "min.insync.replicas", str(self.rng.randrange(1, 4)))
        else:
            self.fleet.configure(topic, "unclean.leader.election.enable", self.rng.choice(["true", "false"]))

    def assign(self) -> None:
        number = self._number()
        topic, index = self._partition()
        broker = self.fleet.duel.image.brokers.get(self.fleet.broker(number))
        # Into a failed directory Apache writes two records that both begin with the same state: a scene has that.
        if topic is not None and broker is not None and broker.log_dirs:
            self.fleet.assign(number, self.rng.choice(broker.log_dirs), topic, index)

    def fail_directory(self) -> None:
        number = self._number()
        self.fleet.beat(number, offline_log_dirs=self.fleet.directories(number)[:1])

    def delete(self) -> None:
        if len(self.topics) > 1:
            self._delete(self.rng.choice(self.topics))

    def unregister(self) -> None:
        number = self._number()
        self.fleet.die(number)
        self.fleet.duel.ask(UnregisterBrokerRequest(broker_id=self.fleet.broker(number)))

    def producer_ids(self) -> None:
        broker = self.fleet.duel.image.brokers.get(self.fleet.broker(self._number()))
        if broker is not None:
            request = AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch)
            self.fleet.duel.ask(request)

    def _delete(self, topic: str) -> None:
        self.topics.remove(topic)
        gone = DeleteTopicState(name=self.fleet.name(topic))
        self.fleet.duel.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=10_000))

    def _number(self) -> int:
        return self.rng.choice(BROKERS)

    def _partition(self) -> tuple[str | None, int]:
        if not self.topics:
            return None, 0
        topic = self.rng.choice(self.topics)
        partitions = self.fleet.duel.image.topics[self.fleet.name(topic)].partitions
        return topic, self.rng.randrange(len(partitions))
