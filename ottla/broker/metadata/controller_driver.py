"""The driver of the controller, which decides requests while this node leads the quorum.

Rules:
- The controller decides on the appended metadata; all others see the committed metadata.
- A decision may depend on one that is not committed yet. Its response waits for both, even if it has no records of its
  own ("the topic already exists").
- A node that stops leading answers all pending requests with NOT_CONTROLLER: the next leader decides whether their
  records stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.controller.activation import activation_records
from ottla.controller.controller import NEWEST, Controller
from ottla.controller.decision import RECORDS_MAX, Decision, MutationQuota, check_size, unlimited
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Clock, Rng
from ottla.raft.event import VersionRaised
from ottla.settings.server.settings import ServerSettings


class ControllerDriver:
    """Runs the controller. `MetadataLog` creates it on a node with the controller role."""

    def __init__(self, settings: ServerSettings, clock: Clock, rng: Rng, raft: RaftDriver, cluster_id: str) -> None:
        self._settings = settings
        self._raft = raft
        self._clock = clock
        self._controller = Controller(settings, rng, cluster_id)
        #: True from the beginning of an epoch that this node leads until it stops leading.
        self.is_active = False
        #: (end offset, callback) pairs; a callback runs once the log is committed up to its offset.
        self._waiting: deque[tuple[int, Callable[[KafkaError | None], None]]] = deque()

    def activate(self) -> None:
        """Begin to decide: this node leads the quorum. Append a new controller's first records."""
        self.is_active = True
        images = self._raft.images
        records = activation_records(
            images.appended,
            in_transaction=images.in_transaction,
            bootstrap=[] if images.appended.metadata_version else self._raft.files.bootstrap_records(),
            min_isr=self._settings.min_insync_replicas,
        )
        if records:
            self._raft.submit(records)
        self._controller.activate(images.appended, self._clock.monotonic_ms())

    def resign(self) -> None:
        """Stop deciding: this node no longer leads the quorum."""
        self.is_active = False
        self._controller.resign()
        self._answer_all(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is no longer the active controller"))

    def ask(
        self, request: Any, done: Callable[[Any], None], version: int = NEWEST, charge: MutationQuota = unlimited
    ) -> None:
        """Let the controller decide a request; `done` gets the response once everything it depends on is committed.

        `done` gets a KafkaError when the whole request or the disk fails, and may be called before this returns.
        `charge` is called for each created or deleted partition.
        """
        raft = self._raft
        try:
            self._check_active()
            decision = self._decide(request, version, charge)
            # The machine may have resigned while it took the records: a later commit at their offsets is not theirs.
            self._check_active()
        except KafkaError as error:
            return done(error)
        raft.sync.later()
        if not raft.images.has_uncommitted:
            return done(decision.response)
        self._waiting.append((raft.log.end_offset, lambda error: done(error or decision.response)))
        return None

    def append(self, records: list[Any]) -> None:
        """Append these records as one batch, to be committed soon. KAFKA_STORAGE_ERROR if the log has failed."""
        self._check_active()
        self._raft.submit(records)
        self._raft.sync.later()

    def _check_active(self) -> None:
        self._raft.check_works()
        if not self.is_active or not self._raft.quorum.leads:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")

    def _decide(self, request: Any, version: int, charge: MutationQuota) -> Decision:
        raft, controller = self._raft, self._controller
        controller.kraft_version = raft.membership.kraft_version
        controller.version_refusal = raft.quorum.version_refusal
        controller.voters = [node.voter.node_id for node in raft.voters]
        now_ms, controller.wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        decision = controller.handle(raft.images.appended, request, version, charge, now_ms=now_ms)
        if decision.kraft_version is not None:
            raft.step(VersionRaised(decision.kraft_version))
        self._submit(decision)
        return decision

    def _submit(self, decision: Decision) -> None:
        """Append the records of a decision in one batch, or in several if the decision allows it.

        POLICY_VIOLATION if one batch would be too large.
        """
        records = decision.records
        if decision.atomic:
            check_size(records)
        at_once = len(records) if decision.atomic else RECORDS_MAX
        for start in range(0, len(records), max(1, at_once)):
            # The machine may have resigned with what was submitted before.
            self._check_active()
            self._raft.submit(records[start : start + at_once])

    # ---- time

    def deadline_ms(self) -> int | None:
        """When `time_passed` is due; None if nothing depends on time."""
        if self._raft.images.appended.brokers.keys() <= {self._settings.node_id}:
            # The broker in the controller's own process lives as long as its controller.
            return self._controller.tokens_due_ms()
        return self._controller.deadline_ms()

    def time_passed(self) -> None:
        """Do what is due, such as fencing silent brokers. KafkaError if the log cannot be written."""
        now_ms = self._clock.monotonic_ms()
        own = self._raft.images.appended.brokers.get(self._settings.node_id)
        if own is not None:
            self._controller.note_contact(own, now_ms)
        self._controller.wall_ms = self._clock.now_ms()
        while (deadline_ms := self.deadline_ms()) is not None and deadline_ms <= now_ms:
            decision = self._controller.time_passed(self._raft.images.appended, now_ms)
            self._submit(decision)

    # ---- outcomes of decisions

    def committed(self, high_watermark: int) -> None:
        """Send the responses that waited for this high watermark."""

        def due() -> Iterator[Callable[[], None]]:
            while self._waiting and self._waiting[0][0] <= high_watermark:
                yield partial(self._waiting.popleft()[1], None)

        call_each(due())

    def failed(self, error: OSError) -> None:
        """Fail all pending requests: the metadata log is unusable."""
        self._answer_all(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {error}"))

    def _answer_all(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        call_each(partial(done, error) for _, done in waiting)
