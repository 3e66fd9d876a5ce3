"""Groups whose members come and go by seeds: no partition has two owners, none is left alone, no record is lost.

Listeners write down who owns what. What a member commits before it gives a partition back, the next one does not see
again; so nothing is seen twice while nobody is lost.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

import ottla
from ottla.client import AsyncAdmin, AsyncConsumer, AsyncProducer, KafkaError, RebalanceListener, TopicPartition
from tests.interop import server as servers

_names = count()
PARTITIONS = 6

#: The assignor of the classic protocol, or the protocol in which the broker assigns.
KINDS = ["range", "roundrobin", "sticky", "cooperative-sticky", "consumer"]


@pytest.fixture(
    scope="module",
    params=["ottla", pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(400)])],
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Heartbeats are quick: they are what a rebalance waits for."""
    quick = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "200",
    }
    if request.param == "ottla":
        with ottla.Node(settings=quick) as node:
            yield node.bootstrap_servers
        return
    server = servers.Server(servers.apache(), tmp_path_factory.mktemp("apache"), settings=quick)
    server.start()
    try:
        yield server.bootstrap
    finally:
        server.stop()


class Scene:
    """One group and what its members have told."""

    def __init__(self, bootstrap: str, kind: str, seed: int) -> None:
        self.bootstrap = bootstrap
        self.kind = kind
        self.random = random.Random(f"{kind}{seed}")
        self.group = f"group-{kind}-{next(_names)}"
        self.topic = f"topic-{kind}-{next(_names)}"
        self.members: dict[str, AsyncConsumer] = {}
        self.owner: dict[TopicPartition, str] = {}
        self.seen: Counter[bytes] = Counter()
        self.sent = 0
        #: Was a member ever thrown out? Then a record may be seen twice.
        self.lost = False

    def settings(self) -> dict[str, Any]:
        protocol: dict[str, Any] = {"partition.assignment.strategy": self.kind, "heartbeat.interval.ms": 200}
        if self.kind == "consumer":
            protocol = {"group.protocol": "consumer"}
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "metadata.max.age.ms": 500,
            **protocol,
        }

    def add(self, name: str, **more: object) -> AsyncConsumer:
        member = AsyncConsumer(self.settings() | more)
        member.subscribe([self.topic], listener=Told(self, name))
        self.members[name] = member
        return member

    async def send(self, admin: AsyncAdmin, records: int) -> None:
        async with AsyncProducer(self.bootstrap) as producer:
            for number in range(self.sent, self.sent + records):
                await producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS)
        self.sent += records

    async def poll(self, name: str) -> None:
        """One poll, and a commit of what it gave."""
        member = self.members[name]
        for record in await member.poll(0.05):
            assert self.owner.get(TopicPartition(record.topic, record.partition)) == name, "read without owning it"
            assert record.value is not None
            self.seen[record.value] += 1
        try:
            await member.commit()
        except KafkaError:
            # A rebalance lies between: what is still ours is committed with the next one, or seen twice when it is not.
            self.lost = True

    async def until_settled(self) -> None:
        """Poll all until every partition has one owner and every record was seen."""
        async with asyncio.timeout(120):
            while not self.settled():
                await asyncio.gather(*(self.poll(name) for name in list(self.members)))

    def settled(self) -> bool:
        owned = [one for member in self.members.values() for one in member.assignment()]
        shares = sorted(len(member.assignment()) for member in self.members.values())
        return (
            len(self.seen) == self.sent
            and len(owned) == len(set(owned)) == PARTITIONS == len(self.owner)
            and shares[-1] - shares[0] <= 1
        )


class Told(RebalanceListener):
    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name

    def assigned(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            assert one not in self.scene.owner, f"{one} is still {self.scene.owner[one]}'s"
            self.scene.owner[one] = self.name

    def revoked(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            assert self.scene.owner.pop(one) == self.name

    def lost(self, partitions: list[TopicPartition]) -> None:
        self.scene.lost = True
        for one in partitions:
            if self.scene.owner.get(one) == self.name:
                del self.scene.owner[one]


@asynccontextmanager
async def scene_of(bootstrap: str, kind: str, seed: int = 0) -> AsyncIterator[tuple[Scene, AsyncAdmin]]:
    scene = Scene(bootstrap, kind, seed)
    async with AsyncAdmin(bootstrap) as admin:
        await admin.create_topic(scene.topic, PARTITIONS)
        try:
            yield scene, admin
        finally:
            for member in scene.members.values():
                await member.close()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go_and_every_record_is_seen_once(place: str, kind: str, seed: int) -> None:
    async def run() -> None:
        async with scene_of(place, kind, seed) as (scene, admin):
            names = count()
            for _ in range(5):
                changes = scene.random.randint(1, 2)
                for _ in range(changes):
                    if len(scene.members) < 2 or (len(scene.members) < 4 and scene.random.random() < 0.6):
                        scene.add(f"member-{next(names)}")
                    else:
                        gone = scene.random.choice(sorted(scene.members))
                        await scene.members.pop(gone).close()
                await scene.send(admin, 30)
                # Sometimes the next change comes in the middle of this one's rebalance.
                if scene.random.random() < 0.5:
                    await scene.until_settled()
                else:
                    for _ in range(scene.random.randint(0, 5)):
                        await asyncio.gather(*(scene.poll(name) for name in list(scene.members)))
            await scene.until_settled()
            assert not scene.lost or kind != "consumer", "nobody was thrown out"
            if not scene.lost:
                assert set(scene.seen.values()) == {1}
            assert sorted(scene.seen) == sorted(b"%d" % number for number in range(scene.sent))

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "consumer"])
def test_a_member_that_stops_polling_loses_its_partitions_and_comes_back(place: str, kind: str) -> None:
    async def run() -> None:
        async with scene_of(place, kind) as (scene, admin):
            await scene.send(admin, 12)
            scene.add("slow", **{"max.poll.interval.ms": 1000})
            await scene.until_settled()
            # Nobody polls for it any more; the other one gets everything when its interval is over.
            slow = scene.members.pop("slow")
            scene.add("quick")
            async with asyncio.timeout(60):
                while len(scene.members["quick"].assignment()) < PARTITIONS:
                    for one in [one for one, owner in scene.owner.items() if owner == "slow"]:
                        # It does not know yet: its listener hears of it with its next poll.
                        del scene.owner[one]
                    await scene.poll("quick")
            await scene.send(admin, 12)
            await scene.until_settled()
            scene.lost = False
            scene.members["slow"] = slow
            await scene.until_settled()
            assert scene.lost, "it was told that its partitions were lost, not only revoked"

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
def test_a_static_member_that_goes_away_for_a_moment_finds_its_partitions_again(place: str, kind: str) -> None:
    async def run() -> None:
        async with scene_of(place, kind) as (scene, admin):
            await scene.send(admin, 12)
            scene.add("one", **{"group.instance.id": "one"})
            scene.add("two", **{"group.instance.id": "two"})
            await scene.until_settled()
            before = {name: member.assignment() for name, member in scene.members.items()}
            await scene.members.pop("one").close()
            for _ in range(5):
                await scene.poll("two")
            assert scene.members["two"].assignment() == before["two"], "its place was kept"
            scene.add("one", **{"group.instance.id": "one"})
            await scene.send(admin, 12)
            await scene.until_settled()
            assert {name: member.assignment() for name, member in scene.members.items()} == before

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
def test_a_cooperative_member_keeps_what_stays_its_own(place: str, kind: str) -> None:
    async def run() -> None:
        async with scene_of(place, kind) as (scene, admin):
            await scene.send(admin, 12)
            scene.add("one")
            await scene.until_settled()
            told = scene.members["one"]._listener
            assert isinstance(told, Told)
            given_back: list[TopicPartition] = []
            revoked = told.revoked

            def note(partitions: list[TopicPartition]) -> None:
                given_back.extend(partitions)
                revoked(partitions)

            told.revoked = note  # type: ignore[method-assign]
            scene.add("two")
            await scene.until_settled()
            assert set(given_back) == scene.members["two"].assignment(), "only what the other one got"
            assert len(given_back) == PARTITIONS // 2

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
def test_a_listener_that_raises_does_not_break_the_membership(place: str, kind: str) -> None:
    async def run() -> None:
        async with scene_of(place, kind) as (scene, admin):
            await scene.send(admin, 12)
            member = scene.add("one")
            told = member._listener
            assert isinstance(told, Told)
            assigned = told.assigned
            calls = count()

            def raising(partitions: list[TopicPartition]) -> None:
                assigned(partitions)
                if next(calls) == 0:
                    raise RuntimeError("not today")

            told.assigned = raising  # type: ignore[method-assign]

            async def until_it_raises() -> None:
                async with asyncio.timeout(60):
                    while True:
                        await scene.poll("one")

            with pytest.raises(RuntimeError, match="not today"):
                await until_it_raises()
            # The partitions are there all the same, and go to another member when it comes.
            await scene.until_settled()
            scene.add("two")
            await scene.send(admin, 12)
            await scene.until_settled()

    asyncio.run(run())


# A broker resolves an expression anew every ten seconds, no sooner.
@pytest.mark.parametrize("kind", ["cooperative-sticky", pytest.param("consumer", marks=pytest.mark.long)])
def test_topics_of_a_pattern_are_joined_as_they_come(place: str, kind: str) -> None:
    async def run() -> None:
        async with scene_of(place, kind) as (scene, admin):
            prefix = f"pattern-{kind}-{next(_names)}"
            members = [AsyncConsumer(scene.settings()) for _ in range(2)]
            try:
                for member in members:
                    # With KIP-848 the broker resolves the expression, else the client does.
                    member.subscribe(f"^{prefix}.*" if kind == "consumer" else re.compile(f"{prefix}.*"))
                wanted: set[TopicPartition] = set()
                # Nothing matches yet, and both are members all the same.
                for _ in range(3):
                    await asyncio.gather(*(member.poll(0.3) for member in members))
                for number in range(3):
                    await admin.create_topic(f"{prefix}-{number}", 2)
                    wanted |= {TopicPartition(f"{prefix}-{number}", each) for each in (0, 1)}
                    async with asyncio.timeout(60):
                        while not _shared(members, wanted):
                            await asyncio.gather(*(member.poll(0.05) for member in members))
            finally:
                for member in members:
                    await member.close()

    asyncio.run(run())


def _shared(members: list[AsyncConsumer], wanted: set[TopicPartition]) -> bool:
    """Has each a part of it, and nobody the same?"""
    owned = [one for member in members for one in member.assignment()]
    return sorted(owned) == sorted(wanted) and all(member.assignment() for member in members)
