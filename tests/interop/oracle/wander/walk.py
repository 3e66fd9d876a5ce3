"""One history on both servers in lockstep, until the first difference.

Rules:
- A step is sent to both servers before either is read. The next step waits for what this one set going: markers of a
  transaction, the broker's sight of a topic, the end of a rebalance. So an answer does not depend on who was faster.
- "Ask again" (a coordinator that loads, markers under way) is no answer: the step is asked again, as a client would.
- A join or a sync that neither server answers is left open, and looked at after each later step; a step on its line
  takes another line.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from ottla.wire.api import API
from ottla.wire.schema import Struct
from tests.interop.oracle.allowed import allowed
from tests.interop.oracle.side import CLOSED, differences, frame, key_of, message
from tests.interop.oracle.wander.bend import bend, may_be_sent
from tests.interop.oracle.wander.history import Step, codes, expand, learn, request
from tests.interop.oracle.wander.place import SILENCE, Place
from tests.interop.oracle.wander.ready import share_member
from tests.interop.server import Server

#: How long one side may be silent when the other has answered.
PATIENCE_S = 5.0
#: How long a join or sync is waited for when nothing says that an answer is due.
GRACE_S = 0.015
#: How long the other side has for an answer that one side has given.
_OTHER_S = 1.5
#: A length that is too long is waited for by both.
_BENT_PATIENCE_S = 1.0
_UNKNOWN_SERVER_ERROR = -1
_AGAIN = {14, 15, 16, 51}
_AGAIN_S = 5.0
_CHANGES = {
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterClientQuotas",
    "AlterUserScramCredentials",
    "UpdateFeatures",
}
#: No request, but a step all the same.
SHARE_MEMBERS_ARE_READY = "share members are ready"
_MAY_WAIT = {"JoinGroup", "SyncGroup"}
_WORDS = {"error_message", "batch_index_error_message"}
_REQUESTS = {one.name: one.request for one in API.values()}
_run = count(1)
_settled = count(1)


class _ApacheFailedError(Exception):
    """Apache met an error that it did not expect."""


@dataclass
class Difference:
    """The first step at which the servers differ."""

    step: int
    what: str
    #: (path, Apache's, ours)
    fields: list[tuple[str, Any, Any]]
    expected: Any
    got: Any

    @property
    def kind(self) -> tuple[str, str, str]:
        """What stays the same while a history is made short: the api, the field, and the values if they are codes."""
        path, left, right = self.fields[0]
        plain = "".join(each for each in path if not each.isdigit())
        values = f"{left!r} {right!r}" if isinstance(left, int) and isinstance(right, int) else ""
        return self.what.split()[0], plain, values if "code" in path else ""


@dataclass
class Walk:
    """One run of one history. `words` counts the texts in which the servers differ: (what, Apache's, ours)."""

    reference: Server
    subject: Server
    steps: int = 0
    words: dict[tuple[str, str, str], int] = field(default_factory=dict)
    #: Histories that ended because Apache failed: what it answers then is nothing to be compared with.
    failures: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for server in (self.reference, self.subject):
            place = Place(server, "wake")
            for key_type in (0, 1):
                _until(place, partial(_has_coordinator, place, key_type), 30.0)
            # The first id is 0, which is also what an error has: no history gets it.
            place.ask(message("InitProducerId", transactional_id=None, transaction_timeout_ms=60_000), 4)
            place.close()

    def run(self, history: list[Step]) -> Difference | None:
        number = next(_run)
        # Beside itself a server has other names on each side: the order of Apache's maps follows from the names.
        sides = "ab" if self.reference is self.subject else "aa"
        names = [f"w{os.getpid():07}-{number:05}{side}-" for side in sides]
        self._places = [Place(self.reference, names[0]), Place(self.subject, names[1])]
        self._open: list[tuple[int, Step, int]] = []
        try:
            for number, step in enumerate(history):
                self.steps += 1
                found = self._play(number, step) or self._look()
                if found:
                    return found
            return None
        except _ApacheFailedError as error:
            self.failures[str(error)] = self.failures.get(str(error), 0) + 1
            return None
        finally:
            for place in self._places:
                _sweep(place)
                place.close()

    def _play(self, number: int, step: Step) -> Difference | None:
        if step.api == SHARE_MEMBERS_ARE_READY:
            for place in self._places:
                values = expand(step.values, place.known, place.prefix)
                share_member(place, values["group"], values["member"], values["topic"])
            return None
        on = step.on
        while any(one == on for _, _, one in self._open):
            on += 100
        if not self._may_be_sent(step):
            return None
        asked = [self._put(place, step, on) for place in self._places]
        if step.api in _MAY_WAIT and not self._answered(step, on):
            self._open.append((number, step, on))
            return None
        patience_s = PATIENCE_S
        if "$bent" in step.values and not self._answered(step, on, _BENT_PATIENCE_S):
            patience_s = 0.0
        replies = [
            self._reply(place, step, on, made, patience_s) for place, made in zip(self._places, asked, strict=True)
        ]
        return self._compare(number, step, replies)

    def _put(self, place: Place, step: Step, on: int) -> Any:
        made = request(_REQUESTS[step.api], expand(step.values, place.known, place.prefix), step.version)
        place.line(on).put(made, step.version, step.values.get("$bent"))
        return made

    def _may_be_sent(self, step: Step) -> bool:
        """Text that is not UTF-8 is another matter (decision 0011)."""
        if "$bent" not in step.values:
            return True
        place = self._places[0]
        made = request(_REQUESTS[step.api], expand(step.values, place.known, place.prefix), step.version)
        return may_be_sent(bend(frame(made, step.version), step.values["$bent"], key_of(made), step.version))

    def _reply(self, place: Place, step: Step, on: int, made: Any, patience_s: float) -> Any:
        """The answer on a line, asked for again while it is "ask again"."""
        deadline = time.monotonic() + _AGAIN_S
        pause_s = 0.002
        while True:
            if step.api == "Produce" and step.values.get("acks") == 0:
                reply: Any = None if _open(place, on) else CLOSED
            elif not place.line(on).ready(patience_s):
                reply = SILENCE
            else:
                reply = place.line(on).take()
            if not isinstance(reply, Struct):
                place.drop(on)
                return reply
            if not codes(reply) & _AGAIN or time.monotonic() > deadline:
                break
            time.sleep(pause_s)
            pause_s = min(0.05, pause_s * 2)
            place.line(on).put(made, step.version)
        learn(place.known, step, reply)
        _after(place, step, made)
        return reply

    def _answered(self, step: Step, on: int, patience_s: float = GRACE_S) -> bool:
        """Has either side answered? If one has, the other gets its time."""
        left, right = (place.line(on) for place in self._places)
        group = step.values.get("group_id")
        if step.api in _MAY_WAIT and isinstance(group, str) and group:
            for place in self._places:
                _see(place, expand(group, {}, place.prefix))
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if left.ready(0.002) or right.ready(0.002):
                return left.ready(_OTHER_S) | right.ready(_OTHER_S)
        return False

    def _look(self) -> Difference | None:
        """Compare the answers to what was left open, if there are any now."""
        for one in list(self._open):
            number, step, on = one
            if not self._answered(step, on):
                continue
            self._open.remove(one)
            replies = []
            for place in self._places:
                line = place.line(on)
                replies.append(line.take() if line.ready(0) else SILENCE)
                if replies[-1] in (SILENCE, CLOSED):
                    place.drop(on)
                else:
                    learn(place.known, step, replies[-1])
            found = self._compare(number, step, replies)
            if found:
                return found
        return None

    def _compare(self, number: int, step: Step, replies: list[Any]) -> Difference | None:
        expected, got = (place.plain(reply, step.version) for place, reply in zip(self._places, replies, strict=True))
        what = f"{step.api} v{step.version}"
        if isinstance(replies[0], Struct) and _UNKNOWN_SERVER_ERROR in codes(replies[0]):
            raise _ApacheFailedError(step.api)
        found = []
        for path, left, right in differences(expected, got):
            if path.rsplit(".", 1)[-1] in _WORDS and bool(left) == bool(right):
                told = (what, str(left), str(right))
                self.words[told] = self.words.get(told, 0) + 1
            elif not allowed(what, path, left, right):
                found.append((path, left, right))
        return Difference(number, what, found, expected, got) if found else None


def _open(place: Place, on: int) -> bool:
    """Is a line still open on which no reply is due? What is asked next is answered if it is."""
    line = place.line(on)
    line.put(message("Metadata", topics=[]), 9)
    return line.ready(PATIENCE_S) and line.take() != CLOSED


def _after(place: Place, step: Step, made: Any) -> None:
    """Wait for what a step set going."""
    if step.api in _CHANGES and not getattr(made, "validate_only", False):
        settle(place)
    elif step.api in ("EndTxn", "InitProducerId") and made.transactional_id:
        _until(place, lambda: _state(place, made.transactional_id) not in ("PrepareCommit", "PrepareAbort"))


def _has_coordinator(place: Place, key_type: int) -> bool:
    """The first who asks has the internal topic made."""
    reply = place.ask(message("FindCoordinator", key_type=key_type, coordinator_keys=["wake"]), 6)
    return reply not in (SILENCE, CLOSED) and reply.coordinators[0].error_code == 0


def _until(place: Place, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.002)


def _state(place: Place, transactional_id: str) -> str:
    reply = place.ask(message("DescribeTransactions", transactional_ids=[transactional_id]), 0)
    if reply in (SILENCE, CLOSED) or reply.transaction_states[0].error_code in _AGAIN:
        return "PrepareCommit"
    state: str = reply.transaction_states[0].transaction_state
    return state


def _see(place: Place, group: str) -> None:
    """Ask the group's coordinator something: what it was asked before has been done."""
    place.ask(message("DescribeGroups", groups=[group]), 5)


def settle(place: Place) -> None:
    """Wait until the broker has acted on what its controller wrote so far.

    It acts on one change of the metadata after the other: when it shows the second of two changes made one after the
    other, it is done with all that came before the second.
    """
    for _ in range(2):
        value = str(60_000 + next(_settled))
        change = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": value}
        resource = {"resource_type": 32, "resource_name": "settle", "configs": [change]}
        place.ask(message("IncrementalAlterConfigs", resources=[resource]), 1)
        _until(place, partial(_shows, place, value))


def _shows(place: Place, value: str) -> bool:
    asked = {"resource_type": 32, "resource_name": "settle", "configuration_keys": ["consumer.session.timeout.ms"]}
    reply = place.ask(message("DescribeConfigs", resources=[asked]), 4)
    return bool(reply.results[0].configs[0].value == value)


def _sweep(place: Place) -> None:
    """Remove the topics that the history made: the servers live for many histories."""
    reply = place.ask(message("Metadata", topics=None), 12)
    if reply in (SILENCE, CLOSED):
        return
    names = [one.name for one in reply.topics if one.name.startswith(place.prefix)]
    if names:
        place.ask(message("DeleteTopics", topics=[{"name": name} for name in names], timeout_ms=5000), 6)
