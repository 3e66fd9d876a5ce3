"""One partition on several brokers, played by a seed: the real leader and follower machines, a controller as a model.

Messages are lost, late and out of order; brokers are killed and lose what they had not synced; elections are clean.
After each step:
- what was ever committed is in the log of every leader that is elected later, at its offset;
- the high watermark of a leader never goes back, and no two values are ever below one at one offset;
- every member of the controller's ISR whose leader is alive holds what is below the leader's high watermark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ottla.kernel.error import ErrorCode
from ottla.replica.follower import (
    AppendRecords,
    AskOffsets,
    FetchAnswered,
    FollowerReplica,
    FollowLeader,
    OffsetsAnswered,
    Pause,
    Position,
    RestartAt,
    Truncate,
)
from ottla.replica.leader import (
    Appended,
    Effect,
    Fetched,
    IsrAccepted,
    IsrRefused,
    LeaderReplica,
    LeaderSettings,
    MetadataFollowed,
    PartitionState,
    ProposeIsr,
    RaiseHighWatermark,
    TimePassed,
)

_LAG_MS = 1_000
_MIN_ISR = 2
Record = tuple[int, int]


@dataclass
class Log:
    """(epoch, value) by offset; what is below `synced` survives a power failure."""

    records: list[Record] = field(default_factory=list)
    high_watermark: int = 0
    synced: int = 0
    start_offset: int = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def latest_epoch(self) -> int:
        return self.records[-1][0] if self.records else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        end = bisect_right([each for each, _ in self.records], epoch)
        if not end and self.records:
            # Older than all that are known: it ended where the first of these begins, as `LeaderEpochs` has it.
            return epoch, 0
        return (self.records[end - 1][0], end) if end else (-1, -1)

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.synced = min(self.synced, offset)
        self.high_watermark = min(self.high_watermark, offset)


@dataclass
class Broker:
    id: int
    epoch: int
    log: Log = field(default_factory=Log)
    alive: bool = True
    #: The newest metadata that it has followed.
    known: PartitionState | None = None
    leader_id: int = -1
    leader: LeaderReplica | None = None
    follower: FollowerReplica | None = None
    #: The brokers that may be in sync, as this broker's metadata has it.
    eligible: dict[int, int] = field(default_factory=dict)


def refusal(broker: Broker, asked: Position) -> FetchAnswered | None:
    """What a broker answers a fetch that it does not serve; None where it does."""
    log = broker.log
    epoch = broker.known.leader_epoch if broker.known else -1
    if asked.current_leader_epoch < epoch:
        return FetchAnswered(asked, ErrorCode.FENCED_LEADER_EPOCH)
    if asked.current_leader_epoch > epoch:
        return FetchAnswered(asked, ErrorCode.UNKNOWN_LEADER_EPOCH)
    if broker.leader is None:
        return FetchAnswered(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if asked.last_fetched_epoch >= 0:
        there, end = log.end_offset_for_epoch(asked.last_fetched_epoch)
        if there != asked.last_fetched_epoch or end < asked.offset:
            return FetchAnswered(asked, diverging=(there, end), high_watermark=log.high_watermark)
    if not log.start_offset <= asked.offset <= log.end_offset:
        return FetchAnswered(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


class Model:
    """The brokers, the controller and the messages between them."""

    def __init__(self, seed: int, brokers: int = 3) -> None:
        self.rng = Random(seed)
        self.now_ms = 0
        ids = tuple(range(1, brokers + 1))
        self.brokers = {each: Broker(each, each) for each in ids}
        self.state = PartitionState(1, 1, ids, ids)
        self.leader_id = 1
        self.fenced: set[int] = set()
        self.next_broker_epoch = 100
        self.next_value = 0
        #: Nothing is lost any more.
        self.calm = False
        self.messages: list[Callable[[], None]] = []
        #: What was ever below a high watermark: offset -> record.
        self.committed: dict[int, Record] = {}
        self.elections = self.expansions = self.truncations = 0
        for each in ids:
            self._tell(each)
        self._deliver_all()

    # ---- the controller

    def _tell(self, broker_id: int) -> None:
        """Metadata on its way to a broker; it may come late, never in another order."""
        state, leader_id = self.state, self.leader_id
        eligible = {each.id: each.epoch for each in self.brokers.values() if each.id not in self.fenced}
        life = self.brokers[broker_id].epoch

        def arrive() -> None:
            broker = self.brokers[broker_id]
            if broker.alive and broker.epoch == life:
                self._follow(broker, state, leader_id, eligible)

        self.messages.append(arrive)

    def _change(self, isr: tuple[int, ...], leader_id: int) -> None:
        leader_epoch = self.state.leader_epoch + (leader_id != self.leader_id)
        if leader_id != self.leader_id and leader_id >= 0:
            self.elections += 1
            log = self.brokers[leader_id].log
            for offset, record in self.committed.items():
                there = log.records[offset] if offset < log.end_offset else None
                assert there == record, f"the new leader {leader_id} has {there} at {offset}, not {record}"
        self.leader_id = leader_id
        self.state = PartitionState(leader_epoch, self.state.partition_epoch + 1, self.state.replicas, isr)
        for each in self.brokers:
            self._tell(each)

    def _fence(self, broker_id: int) -> None:
        self.fenced.add(broker_id)
        isr = tuple(each for each in self.state.isr if each != broker_id) or self.state.isr
        self._change(isr, self._elect(isr))

    def _elect(self, isr: tuple[int, ...]) -> int:
        if self.leader_id >= 0 and self.leader_id not in self.fenced:
            return self.leader_id
        return next((each for each in isr if each not in self.fenced), -1)

    def _alter(self, proposal: ProposeIsr, from_id: int) -> Callable[[LeaderReplica], list[Effect]]:
        """The controller's answer to AlterPartition, as an event for the leader."""

        def refuse(code: ErrorCode) -> Callable[[LeaderReplica], list[Effect]]:
            return lambda leader: leader.step(IsrRefused(proposal, code), self.now_ms)

        state = self.state
        if from_id != self.leader_id or proposal.leader_epoch < state.leader_epoch:
            return refuse(ErrorCode.FENCED_LEADER_EPOCH)
        if proposal.partition_epoch != state.partition_epoch:
            return refuse(ErrorCode.INVALID_UPDATE_VERSION)
        for each, epoch in proposal.members:
            if each in self.fenced or epoch != self.brokers[each].epoch:
                return refuse(ErrorCode.INELIGIBLE_REPLICA)
        isr = tuple(each for each, _ in proposal.members)
        self.expansions += len(isr) > len(state.isr)
        self._change(isr, self.leader_id)
        new = self.state
        answer = IsrAccepted(proposal, new.leader_epoch, new.partition_epoch, new.isr)
        return lambda leader: leader.step(answer, self.now_ms)

    # ---- brokers

    def _follow(self, broker: Broker, state: PartitionState, leader_id: int, eligible: dict[int, int]) -> None:
        known = broker.known
        if known is not None and (state.leader_epoch, state.partition_epoch) <= (
            known.leader_epoch,
            known.partition_epoch,
        ):
            return
        broker.known, broker.leader_id = state, leader_id
        broker.eligible.clear()
        broker.eligible.update(eligible)
        if known is None or state.leader_epoch != known.leader_epoch:
            broker.leader = broker.follower = None
            if leader_id == broker.id:
                broker.leader = LeaderReplica(
                    LeaderSettings(broker.id, _LAG_MS, _MIN_ISR),
                    state,
                    end_offset=broker.log.end_offset,
                    high_watermark=broker.log.high_watermark,
                    brokers=broker.eligible,
                    now_ms=self.now_ms,
                )
            elif leader_id >= 0:
                broker.follower = FollowerReplica(leader_id, state.leader_epoch)
        elif broker.leader is not None:
            self._carry_out(broker, broker.leader.step(MetadataFollowed(state, _MIN_ISR), self.now_ms))

    def _carry_out(self, broker: Broker, effects: list[Effect]) -> None:
        leader = broker.leader
        for effect in effects:
            if isinstance(effect, RaiseHighWatermark):
                assert effect.offset > broker.log.high_watermark or effect.offset <= broker.log.end_offset
                broker.log.high_watermark = effect.offset
                self._commit(broker)
            else:
                self._propose(broker, leader, effect)
        if leader is not None:
            leader.validate()

    def _commit(self, broker: Broker) -> None:
        for offset in range(broker.log.high_watermark):
            record = broker.log.records[offset]
            before = self.committed.setdefault(offset, record)
            assert before == record, f"{before} and {record} were both committed at {offset}"

    def _propose(self, broker: Broker, leader: LeaderReplica | None, proposal: ProposeIsr) -> None:
        def told(answer: Callable[[LeaderReplica], list[Effect]]) -> None:
            if broker.leader is leader and leader is not None and broker.alive:
                self._carry_out(broker, answer(leader))

        def arrive() -> None:
            answer = self._alter(proposal, broker.id)
            self.messages.append(lambda: told(answer))

        # A request that is lost, or whose answer is, times out, and is made again.
        lost = IsrRefused(proposal, ErrorCode.REQUEST_TIMED_OUT)
        self.messages.append(lambda: told(lambda each: each.step(lost, self.now_ms)) if self._is_lost() else arrive())

    def _is_lost(self) -> bool:
        return not self.calm and self.rng.random() < 0.1

    def _ask(self, broker: Broker) -> None:
        """A follower fetches."""
        follower = broker.follower
        if follower is None:
            return
        asked = follower.position(broker.log)
        if asked is None:
            return
        life, target = broker.epoch, self.brokers[follower.leader_id]

        def arrive() -> None:
            if target.alive and not self._is_lost():
                answer, data = self._serve(target, broker.id, life, asked)
                self.messages.append(lambda: self._answered(broker, follower, answer, data))

        self.messages.append(arrive)

    def _serve(self, broker: Broker, replica_id: int, life: int, asked: Position) -> tuple[FetchAnswered, list[Record]]:
        refused = refusal(broker, asked)
        if refused is not None:
            return refused, []
        leader, log = broker.leader, broker.log
        assert leader is not None
        fetched = Fetched(replica_id, life, asked.offset, asked.log_start_offset)
        self._carry_out(broker, leader.step(fetched, self.now_ms))
        data = log.records[asked.offset : asked.offset + 1 + self.rng.randrange(4)]
        return FetchAnswered(asked, high_watermark=log.high_watermark, size=len(data)), data

    def _answered(self, broker: Broker, follower: FollowerReplica, answer: FetchAnswered, data: list[Record]) -> None:
        log = broker.log
        if not broker.alive or broker.follower is not follower:
            return
        for effect in follower.fetched(answer, log):
            match effect:
                case AppendRecords():
                    log.records += data
                case FollowLeader():
                    log.high_watermark = max(log.high_watermark, min(effect.high_watermark, log.end_offset))
                case Truncate():
                    self.truncations += effect.offset < log.end_offset
                    log.truncate(effect.offset)
                case AskOffsets():
                    target = self.brokers[follower.leader_id]
                    told = OffsetsAnswered(follower.leader_epoch, 0, target.log.end_offset)
                    for mend in follower.answered_offsets(told if target.leader else None, log):
                        if isinstance(mend, Truncate):
                            log.truncate(mend.offset)
                case RestartAt() | Pause():
                    pass

    # ---- what happens

    def step(self) -> None:
        """One thing happens."""
        rng = self.rng
        broker = rng.choice(list(self.brokers.values()))
        match rng.randrange(20):
            case 0 | 1 | 2:
                self._produce(broker)
            case 3 | 4 | 5 | 6 | 7:
                if broker.alive:
                    self._ask(broker)
            case 8:
                self.now_ms += rng.randrange(_LAG_MS)
                self._look(broker)
            case 9 if rng.random() < 0.3:
                self._kill(broker)
            case 10 if not broker.alive:
                self._start(broker)
            case 11 if self.messages and rng.random() < 0.5:
                self.messages.pop(rng.randrange(len(self.messages)))()
            case 13 if broker.alive:
                broker.log.synced = broker.log.end_offset
            case _:
                if self.messages:
                    self.messages.pop(0)()
        self._check()

    def _produce(self, broker: Broker) -> None:
        if broker.alive and broker.leader is not None:
            self.next_value += 1
            broker.log.records.append((broker.leader.state.leader_epoch, self.next_value))
            self._carry_out(broker, broker.leader.step(Appended(broker.log.end_offset), self.now_ms))

    def _look(self, broker: Broker) -> None:
        if broker.alive and broker.leader is not None:
            self._carry_out(broker, broker.leader.step(TimePassed(), self.now_ms))

    def _kill(self, broker: Broker) -> None:
        """It dies, and the controller finds out; what it had not synced is lost if others have it."""
        if not broker.alive or sum(each.alive for each in self.brokers.values()) == 1:
            return
        broker.alive = False
        broker.leader = broker.follower = None
        broker.known = None
        self._fence(broker.id)
        # The last of the ISR is not lost: no protocol saves what only it had.
        if broker.id not in self.state.isr and self.rng.random() < 0.5:
            broker.log.truncate(broker.log.synced)

    def _start(self, broker: Broker) -> None:
        broker.alive = True
        self.next_broker_epoch += 1
        broker.epoch = self.next_broker_epoch
        self.fenced.discard(broker.id)
        broker.eligible = {}
        self._change(self.state.isr, self._elect(self.state.isr))

    def _deliver_all(self) -> None:
        while self.messages:
            self.messages.pop(0)()

    def _check(self) -> None:
        leader = self.brokers.get(self.leader_id)
        if leader is None or not leader.alive or leader.leader is None:
            return
        if leader.leader.state.leader_epoch != self.state.leader_epoch:
            return
        committed = leader.log.records[: leader.log.high_watermark]
        for each in self.state.isr:
            held = self.brokers[each].log.records[: len(committed)]
            assert held == committed, f"broker {each} is in the ISR and lacks what is committed: {held} {committed}"

    def settle(self) -> None:
        """No more faults: everything is level in the end."""
        self.calm = True
        for broker in self.brokers.values():
            if not broker.alive:
                self._start(broker)
        for _ in range(400):
            self._deliver_all()
            self.now_ms += 10
            for broker in self.brokers.values():
                self._ask(broker)
                self._look(broker)
                self._tell(broker.id)
        self._deliver_all()
        logs = [broker.log for broker in self.brokers.values()]
        assert self.leader_id >= 0
        assert sorted(self.state.isr) == sorted(self.brokers), f"the ISR is {self.state.isr}"
        assert all(log.records == logs[0].records for log in logs)
        assert all(log.high_watermark == log.end_offset for log in logs), [log.high_watermark for log in logs]
