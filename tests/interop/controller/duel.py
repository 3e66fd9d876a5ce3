"""Apache's controller and ours side by side: every request goes to both; answers and records must be the same.

Rules:
- Ours begins with what Apache's log holds, and every decision of ours stands at the offset at which Apache's stands: so
  broker epochs and offsets are the same.
- Ids of topics are made by chance: ours gets those that Apache made. Replicas are chosen by the scripts.
- Time is Apache's: when its log says that a broker was silent for too long, the same is made so on our side.
- Where Apache's order comes from hash maps (partitions of one event, ELR) it is not compared.
"""

import time
from random import Random
from typing import Any

from ottla.controller.controller import Controller
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.image import Image
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api import API
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.api.create_topics import CreateTopicsResponse
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ottla.wire.schema import Struct, fields
from tests.interop.controller.apache import NODE_ID, SESSION_MS, SETTINGS, ApacheController, Written
from tests.interop.oracle.side import CLOSED, Connection, key_of
from tests.interop.server import CLUSTER_ID

#: Fields that say nothing new in a failure.
_DULL = ("features", "configs", "listeners", "end_points", "incarnation_id", "timeout_ms")
_UNORDERED = ("eligible_leader_replicas",)


class _Ids(Random):
    """Gives the ids that Apache made."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given: list[bytes] = []

    def randbytes(self, n: int) -> bytes:
        return self.given.pop(0) if self.given and n == 16 else super().randbytes(n)


class Duel:
    """Both controllers; a test makes one on a server that may have seen other tests."""

    def __init__(self, apache: ApacheController) -> None:
        self._apache = apache
        self._connection = Connection(apache.port)
        self._ids = _Ids()
        addresses = {"listeners": "CONTROLLER://127.0.0.1:1", "controller.quorum.bootstrap.servers": "127.0.0.1:1"}
        settings = ServerSettings.parse({**SETTINGS, **addresses, "log.dirs": "/data"})
        self._ours = Controller(settings, self._ids, CLUSTER_ID)
        self._ours.voters = [NODE_ID]
        self._fold = MetadataReplayer(Image.empty())
        apache._position = 0
        for batch in apache.written():
            self._replay(batch)
        self._ours.activate(self.image, _now_ms())
        #: Then the two sides do not have the same past any more.
        self.has_failed = False
        #: (broker, epoch) of those that stopped, until Apache forgets their sessions.
        self.stopped: set[tuple[int, int]] = set()
        #: What was asked and answered, for the message of a failure.
        self.story: list[str] = []

    @property
    def image(self) -> Image:
        return self._fold.image

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Apache's answer, which is ours as well: a response, or the code with which all of it failed."""
        version = API[key_of(request)].versions[-1] if version is None else version
        expected = self._connection.ask(request, version)
        assert expected != CLOSED, f"Apache closed the connection on {request!r}"
        written = self._events(self._apache.written())
        self.story.append(f"{_brief(request)} v{version}\n  -> {_brief(expected)}")
        self.story += [f"  {batch.offset}: {_brief(batch.records)}" for batch in written]
        while written and self._is_silence(written[0], request):
            self._fence(written.pop(0))
        if isinstance(expected, CreateTopicsResponse):
            self._ids.given = [bytes(topic.topic_id) for topic in expected.topics if not topic.error_code]
        code = getattr(expected, "error_code", 0)
        answer = ErrorCode(code) if code else expected
        records: list[Any] = []
        try:
            decision = self._ours.handle(self.image, request, version, now_ms=_now_ms())
        except KafkaError as error:
            self._compare("answers", answer, ErrorCode(error.code))
        else:
            records = decision.records
            self._compare("answers", _plain(expected), _plain(decision.response))
        own = Written(self.image.offset + 1, records)
        theirs, written = self._split(written, len(records), own.offset)
        expected_records = (theirs.offset, self._canonical(theirs.records))
        self._compare("records", expected_records, (own.offset, self._canonical(records)))
        self._replay(theirs)
        if isinstance(expected, BrokerHeartbeatResponse) and expected.should_shut_down:
            self.stopped.add((request.broker_id, request.broker_epoch))
        elif isinstance(expected, BrokerHeartbeatResponse):
            self.stopped.discard((request.broker_id, request.broker_epoch))
        for batch in written:
            self._fence(batch)
        return answer

    def is_heard(self, broker_id: int, epoch: int) -> bool:
        """Does a session of this incarnation run?"""
        active = self._ours._active
        if (broker_id, epoch) in self.stopped:
            return True
        return active is not None and active.sessions.is_alive(broker_id, epoch, 0)

    def settle(self) -> None:
        """Follow what Apache did by itself."""
        for batch in self._events(self._apache.written()):
            self._fence(batch)

    def _is_silence(self, batch: Written, request: Any) -> bool:
        broker_id = _fenced(batch)
        asks = request.broker_id if isinstance(request, BrokerHeartbeatRequest) else None
        return broker_id is not None and broker_id != asks

    def _fence(self, batch: Written) -> None:
        """Apache has fenced a broker by itself: ours does so when that broker is the only one that was silent."""
        broker_id = _fenced(batch)
        assert broker_id is not None, f"Apache wrote by itself: {batch!r}\n{self.told()}"
        self.story.append(f"Apache fences {broker_id}: {_brief(batch.records)}")
        now_ms = _now_ms()
        active = self._ours._active
        assert active is not None
        heard = active.sessions._heard
        key = broker_id, self.image.brokers[broker_id].epoch
        self.stopped.discard(key)
        if key not in heard and self._is_fenced(broker_id) and len(batch.records) == 1:
            # Ours let it go with the answer that let it stop (0411).
            return self._replay(batch)
        self._compare("heard of", True, key in heard)
        active.sessions._heard = {key: now_ms - SESSION_MS - 1} | {each: now_ms for each in heard if each != key}
        records = self._ours.time_passed(self.image, now_ms).records
        self._compare("records", self._canonical(batch.records), self._canonical(records))
        return self._replay(batch)

    def _events(self, written: list[Written]) -> list[Written]:
        """One batch may hold several events that came together: a broker that is fenced is one, with its partitions."""
        found = []
        for batch in written:
            records, start = batch.records, 0
            for index in range(len(records)):
                broker_id = _fenced(Written(0, records[: index + 1]))
                if broker_id is None:
                    continue
                begin = index
                while not self._is_fenced(broker_id) and begin > start:
                    if not isinstance(records[begin - 1], PartitionChangeRecord):
                        break
                    begin -= 1
                if begin > start:
                    found.append(Written(batch.offset + start, records[start:begin]))
                found.append(Written(batch.offset + begin, records[begin : index + 1]))
                start = index + 1
            if start < len(records):
                found.append(Written(batch.offset + start, records[start:]))
        return found

    def _is_fenced(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is None or broker.fenced

    def _split(self, written: list[Written], count: int, offset: int) -> tuple[Written, list[Written]]:
        """The first records, as many as ours are, and the events behind them."""
        records: list[Any] = []
        while written and len(records) < count:
            event = written.pop(0)
            offset = event.offset if not records else offset
            records += event.records
        rest = [Written(offset + count, records[count:])] if len(records) > count else []
        return Written(offset, records[:count]), self._events(rest) + written

    def _replay(self, batch: Written) -> None:
        for offset, record in enumerate(batch.records, batch.offset):
            if record is not None:
                self._fold.replay(record, offset, 1, 0)
        if batch.records:
            self._fold.publish(batch.offset + len(batch.records) - 1, 1, 0)

    def dropped(self) -> list[str]:
        """Topics that have eligible leaders which are no replicas any more: only Apache keeps those (0410)."""
        return [
            name
            for name, topic in self.image.topics.items()
            if any(not set(each.eligible_leader_replicas) <= set(each.replicas) for each in topic.partitions)
        ]

    def _canonical(self, records: list[Any]) -> list[str]:
        """Records as texts, those of one kind that stand together sorted."""
        runs: list[tuple[type, list[str]]] = []
        for record in records:
            if not runs or runs[-1][0] is not type(record):
                runs.append((type(record), []))
            runs[-1][1].append(_brief(record, (*_DULL, *_UNORDERED)) + self._eligible(record))
        return [text for _, run in runs for text in sorted(run)]

    def _eligible(self, record: Any) -> str:
        """The eligible leaders after a change, without order and without those that are no replicas (0410)."""
        if not isinstance(record, PartitionChangeRecord):
            return ""
        topic = self.image.topic(Uuid(record.topic_id))
        if topic is None:
            return ""
        before, wanted = topic.partitions[record.partition_id], record.eligible_leader_replicas
        eligible = before.eligible_leader_replicas if wanted is None else wanted
        replicas = before.replicas if record.replicas is None else record.replicas
        return f" ELR {sorted(set(eligible) & set(replicas))}"

    def _compare(self, what: str, expected: Any, got: Any) -> None:
        self.has_failed = expected != got
        assert not self.has_failed, f"other {what}:\nApache {expected!r}\nOttla  {got!r}\nafter\n{self.told()}"

    def told(self) -> str:
        """What was asked so far, the last of it."""
        return "\n".join(self.story[-24:])


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _fenced(batch: Written) -> int | None:
    """The broker that a batch fences at its end."""
    last = batch.records[-1] if batch.records else None
    if isinstance(last, BrokerRegistrationChangeRecord) and last.fenced == 1:
        return last.broker_id
    return None


def _brief(value: Any, dull: tuple[str, ...] = _DULL) -> str:
    """What a struct says beyond its defaults."""
    if isinstance(value, Struct):
        nothing = type(value)()
        told = [
            f"{each.name}={_brief(getattr(value, each.name), dull)}"
            for each in fields(type(value))
            if getattr(value, each.name) != getattr(nothing, each.name) and each.name not in dull
        ]
        return f"{type(value).__name__}({', '.join(told)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else repr(value)


def _plain(value: Any, name: str = "") -> Any:
    """A response as plain values, order left away where Apache has none."""
    if isinstance(value, Struct):
        return {
            each.name: _plain(getattr(value, each.name), each.name)
            for each in fields(type(value))
            if each.name != "throttle_time_ms"
        }
    if isinstance(value, list):
        items = [_plain(each) for each in value]
        return (
            sorted(items, key=repr)
            if name in ("topics", "partitions", "replica_election_results", "configs")
            else items
        )
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value
