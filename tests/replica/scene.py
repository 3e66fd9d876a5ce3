"""Scenes of a partition's leader and followers: `python -m tests.replica.scene --rewrite` writes the traces down.

The machines of the brokers (`LeaderReplica`, `FollowerReplica`) are the product's. The controller is the text, and
a message travels when a command says so. The commands of a file of `tests/replica/scenes`:

    replicas N ... [lag=MS] [min-isr=N]            the first command; broker N has the broker epoch 100 + N
    log N E:COUNT ... [hw=OFFSET] [start=OFFSET]   the log of broker N: COUNT records of each epoch E
    metadata leader=N [epoch=E] [isr=N,...] [to=N,...]   the controller commits this, a partition epoch later
    metadata [to=N,...]   what the controller has committed reaches brokers
    brokers N[=EPOCH] ... [to=N]                   who is unfenced and stays, as broker N has it, or all have
    min-isr N          of the topic, with the next metadata
    append N COUNT     produce to the leader N
    fetch F            a fetch of broker F, served and answered at once
    ask F              the fetch is on its way; serve F: it arrives; answer F: the answer does
    offsets F [lost]   the answer to where the leader's log begins and ends
    accept N [isr=N,...]   the controller takes the proposal of N
    accepted N         the answer of the proposal that was taken arrives at N
    refuse N CODE      the controller refuses the proposal of N
    pass MS            time goes by, and leaders look who lags
    level N F          the session of F told the leader N now that nothing has changed
    state              logs, high watermarks and ISRs
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ottla.kernel.error import ErrorCode
from ottla.replica import follower, leader
from ottla.replica.follower import FetchAnswered, FollowerReplica, OffsetsAnswered, Position
from ottla.replica.leader import Fetched, IsrAccepted, IsrRefused, LeaderReplica, LeaderSettings, PartitionState
from tests import play
from tests.play import NothingThere
from tests.replica.model import Broker, Record, refusal

FOLDER = Path(__file__).parent / "scenes"


@dataclass
class _Fetch:
    """A fetch that is under way, or its answer."""

    by: FollowerReplica
    asked: Position
    answer: FetchAnswered | None = None
    records: tuple[Record, ...] = ()


def _split(words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """(plain words, the named ones)"""
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], named


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


class Scene(play.Scene):
    """The brokers of one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers: dict[int, Broker] = {}
        self.now_ms = 0
        self.lag_ms, self.min_isr = 1_000, 1
        self.state = PartitionState(0, 0, (), ())
        self.leader_id = -1
        self.under_way: dict[int, _Fetch] = {}
        self.taken: dict[int, IsrAccepted] = {}

    def check(self) -> None:
        """What a leader never does."""
        for broker in self.brokers.values():
            if broker.leader is not None:
                broker.leader.validate()

    # ---- the controller

    def do_replicas(self, *words: str) -> None:
        plain, named = _split(words)
        ids = tuple(map(int, plain))
        self.lag_ms = int(named.get("lag", self.lag_ms))
        self.min_isr = int(named.get("min-isr", self.min_isr))
        self.brokers = {each: Broker(each, 100 + each) for each in ids}
        self.state = PartitionState(0, 0, ids, ids)
        for broker in self.brokers.values():
            broker.eligible = {each: 100 + each for each in ids}

    def do_brokers(self, *words: str) -> None:
        plain, named = _split(tuple(word for word in words if not word[0].isdigit()))
        assert not plain
        eligible = {}
        for word in words:
            if word[0].isdigit():
                broker_id, _, epoch = word.partition("=")
                eligible[int(broker_id)] = int(epoch) if epoch else self.brokers[int(broker_id)].epoch
        for each in _ids(named.get("to", "")) or self.brokers:
            # The leader looks at its broker's own view.
            self.brokers[each].eligible.clear()
            self.brokers[each].eligible.update(eligible)

    def do_min_isr(self, number: str) -> None:
        self.min_isr = int(number)

    def do_metadata(self, *words: str) -> None:
        _, named = _split(words)
        self.leader_id = int(named.get("leader", self.leader_id))
        before = self.state
        if named.keys() - {"to"}:
            self.state = PartitionState(
                int(named.get("epoch", before.leader_epoch)),
                before.partition_epoch + 1,
                before.replicas,
                _ids(named["isr"]) if "isr" in named else before.isr,
            )
        for each in _ids(named.get("to", "")) or self.brokers:
            self._follow(self.brokers[each])

    def _follow(self, broker: Broker) -> None:
        known, broker.known = broker.known, self.state
        if known is not None and known.leader_epoch == self.state.leader_epoch:
            if broker.leader is not None:
                self._led(broker, leader.MetadataFollowed(self.state, self.min_isr))
            return
        broker.leader = broker.follower = None
        if self.leader_id == broker.id:
            broker.leader = LeaderReplica(
                LeaderSettings(broker.id, self.lag_ms, self.min_isr),
                self.state,
                end_offset=broker.log.end_offset,
                high_watermark=broker.log.high_watermark,
                brokers=broker.eligible,
                now_ms=self.now_ms,
            )
            self.lines.append(f"{broker.id} leads epoch {self.state.leader_epoch} from {broker.log.end_offset}")
        elif self.leader_id >= 0:
            broker.follower = FollowerReplica(self.leader_id, self.state.leader_epoch)
            self.lines.append(f"{broker.id} follows {self.leader_id} in epoch {self.state.leader_epoch}")

    def do_accept(self, broker_id: str, *words: str) -> None:
        _, named = _split(words)
        broker, proposal = self._proposal(broker_id)
        isr = _ids(named["isr"]) if "isr" in named else tuple(each for each, _ in proposal.members)
        before = self.state
        self.state = PartitionState(before.leader_epoch, before.partition_epoch + 1, before.replicas, isr)
        self.taken[broker.id] = IsrAccepted(proposal, self.state.leader_epoch, self.state.partition_epoch, isr)

    def do_accepted(self, broker_id: str) -> None:
        if int(broker_id) not in self.taken:
            raise NothingThere("no answer is under way")
        self._led(self.brokers[int(broker_id)], self.taken.pop(int(broker_id)))

    def do_refuse(self, broker_id: str, code: str) -> None:
        broker, proposal = self._proposal(broker_id)
        self._led(broker, IsrRefused(proposal, ErrorCode[code]))

    def _proposal(self, broker_id: str) -> tuple[Broker, leader.ProposeIsr]:
        broker = self.brokers[int(broker_id)]
        if broker.leader is None or broker.leader.proposal is None:
            raise NothingThere(f"{broker_id} proposes nothing")
        return broker, broker.leader.proposal

    # ---- brokers

    def do_log(self, broker_id: str, *words: str) -> None:
        plain, named = _split(words)
        log = self.brokers[int(broker_id)].log
        log.start_offset = int(named.get("start", 0))
        log.records = [(-1, 0)] * log.start_offset
        for word in plain:
            epoch, _, count = word.partition(":")
            log.records += [(int(epoch), 0)] * int(count)
        log.high_watermark = int(named.get("hw", 0))

    def do_append(self, broker_id: str, count: str) -> None:
        broker = self.brokers[int(broker_id)]
        if broker.leader is None:
            raise NothingThere(f"{broker_id} does not lead")
        broker.log.records += [(broker.leader.state.leader_epoch, 0)] * int(count)
        self._led(broker, leader.Appended(broker.log.end_offset))

    def do_pass(self, ms: str) -> None:
        self.now_ms += int(ms)
        for broker in self.brokers.values():
            if broker.leader is not None:
                self._led(broker, leader.TimePassed())

    def do_level(self, broker_id: str, follower_id: str) -> None:
        machine = self.brokers[int(broker_id)].leader
        assert machine is not None
        machine.note_caught_up(int(follower_id), self.now_ms)

    def do_fetch(self, broker_id: str) -> None:
        self.do_ask(broker_id)
        self.do_serve(broker_id)
        self.do_answer(broker_id)

    def do_ask(self, broker_id: str) -> None:
        broker = self.brokers[int(broker_id)]
        asked = broker.follower.position(broker.log) if broker.follower is not None else None
        if broker.follower is None or asked is None:
            raise NothingThere(f"{broker_id} asks nothing")
        self.under_way[broker.id] = _Fetch(broker.follower, asked)
        self.lines.append(
            f"{broker_id} asks {broker.follower.leader_id}: from {asked.offset}, "
            f"last epoch {asked.last_fetched_epoch}, leader's epoch {asked.current_leader_epoch}"
        )

    def do_serve(self, broker_id: str) -> None:
        fetch = self._under_way(broker_id)
        broker = self.brokers[fetch.by.leader_id]
        fetch.answer = refusal(broker, fetch.asked)
        if fetch.answer is None:
            assert broker.leader is not None
            epoch = self.brokers[int(broker_id)].epoch
            self._led(broker, Fetched(int(broker_id), epoch, fetch.asked.offset, fetch.asked.log_start_offset))
            log = broker.log
            fetch.records = tuple(log.records[fetch.asked.offset :])
            fetch.answer = FetchAnswered(
                fetch.asked,
                high_watermark=log.high_watermark,
                log_start_offset=log.start_offset,
                size=len(fetch.records),
            )
        self.lines.append(f"{broker.id} answers {broker_id}: {_answer_words(fetch.answer)}")

    def do_answer(self, broker_id: str) -> None:
        fetch, broker = self._under_way(broker_id), self.brokers[int(broker_id)]
        if fetch.answer is None:
            raise NothingThere(f"the fetch of {broker_id} was not served")
        del self.under_way[broker.id]
        if broker.follower is not fetch.by:
            self.lines.append(f"{broker_id} drops the answer of another epoch")
            return
        effects = fetch.by.fetched(fetch.answer, broker.log)
        if not effects:
            self.lines.append(f"{broker_id} does nothing")
        self._followed(broker, effects, fetch.records)

    def do_offsets(self, broker_id: str, lost: str = "") -> None:
        broker = self.brokers[int(broker_id)]
        machine = broker.follower
        if machine is None or not machine.awaits_offsets:
            raise NothingThere(f"{broker_id} does not ask for offsets")
        log = self.brokers[machine.leader_id].log
        told = None if lost else OffsetsAnswered(machine.leader_epoch, log.start_offset, log.end_offset)
        self._followed(broker, machine.answered_offsets(told, broker.log), ())

    def _under_way(self, broker_id: str) -> _Fetch:
        fetch = self.under_way.get(int(broker_id))
        if fetch is None:
            raise NothingThere(f"no fetch of {broker_id} is under way")
        return fetch

    def do_state(self) -> None:
        for broker in self.brokers.values():
            log = broker.log
            epochs = groupby(log.records[log.start_offset :], key=lambda each: each[0])
            held = " ".join(f"{epoch}:{len(list(records))}" for epoch, records in epochs) or "nothing"
            begins = f" from {log.start_offset}" if log.start_offset else ""
            line = f"{broker.id} has {held}{begins}, committed {log.high_watermark}"
            if broker.leader is not None:
                machine = broker.leader
                line += f"; ISR {_words(machine.state.isr)} at partition epoch {machine.state.partition_epoch}"
                if machine.maximal_isr != set(machine.state.isr):
                    line += f", maximal {_words(sorted(machine.maximal_isr))}"
                if machine.is_under_min_isr:
                    line += ", under min ISR"
            self.lines.append(line)

    # ---- effects

    def _led(self, broker: Broker, event: leader.Event) -> None:
        assert broker.leader is not None
        for effect in broker.leader.step(event, self.now_ms):
            if isinstance(effect, leader.RaiseHighWatermark):
                broker.log.high_watermark = effect.offset
                self.lines.append(f"{broker.id} commits up to {effect.offset}")
            else:
                members = " ".join(f"{each} (broker epoch {epoch})" for each, epoch in effect.members)
                self.lines.append(
                    f"{broker.id} proposes the ISR {members} in epoch {effect.leader_epoch}, "
                    f"partition epoch {effect.partition_epoch}"
                )

    def _followed(self, broker: Broker, effects: list[follower.Effect], records: tuple[Record, ...]) -> None:
        log = broker.log
        for effect in effects:
            match effect:
                case follower.AppendRecords():
                    taken = [each for each in records if each[0] <= effect.leader_epoch]
                    log.records += taken
                    self.lines.append(f"{broker.id} appends {len(taken)}")
                case follower.FollowLeader():
                    before = log.high_watermark
                    log.high_watermark = max(before, min(effect.high_watermark, log.end_offset))
                    if log.high_watermark != before:
                        self.lines.append(f"{broker.id} knows of commits up to {log.high_watermark}")
                case follower.Truncate():
                    log.truncate(effect.offset)
                    self.lines.append(f"{broker.id} truncates to {effect.offset}")
                case follower.RestartAt():
                    log.records, log.start_offset = [(-1, 0)] * effect.offset, effect.offset
                    log.high_watermark = effect.offset
                    self.lines.append(f"{broker.id} begins again at {effect.offset}")
                case follower.AskOffsets():
                    self.lines.append(f"{broker.id} asks where the leader's log begins and ends")
                case follower.Pause():
                    self.lines.append(f"{broker.id} pauses")


def _words(ids: tuple[int, ...] | list[int]) -> str:
    return " ".join(map(str, ids))


def _answer_words(answer: FetchAnswered) -> str:
    if answer.error is not ErrorCode.NONE:
        return answer.error.name
    if answer.diverging is not None:
        epoch, end = answer.diverging
        return f"epoch {epoch} ends at {end}"
    return f"{answer.size} records, committed {answer.high_watermark}"


if __name__ == "__main__":
    sys.exit(play.main(FOLDER, Scene))
