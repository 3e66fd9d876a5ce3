"""The driver of a broker's life: what it sends, what it tells the node, and the words with which a life ends."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.controllers.broker_life import BrokerLife
from ottla.broker.controllers.lifecycle import LifeState, SendHeartbeat
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid, parse_uuid
from ottla.sim.disk import SimDisk
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.controller.place import Place

_DIRECTORY = "AAAAAAAAAAAAAAAAAAAABQ"
_REGISTRATION_MS = 60_000


class _Scene:
    """Node 1 with a clock; `asked` are its requests, whose answers the test gives."""

    def __init__(self) -> None:
        self.place = Place(SimDisk(Random(1)))
        self.settings = self.place.settings
        self.clock, self.disk, self.rng, self.node_id = self.place.clock, self.place.disk, Random(2), 1
        self.disk.make_directory("/data")
        self.told: list[Any] = []
        self.asked: list[tuple[Any, Callable[[Any], None]]] = []
        self.timers: list[Any] = []
        self.loop = self
        self.on_failure = lambda why: self.told.append(("failed", why))
        self.quorum: Any = SimpleNamespace(
            image=SimpleNamespace(features={}, brokers={}, offset=40),
            decided=SimpleNamespace(brokers={}),
            leader=None,
            trouble="",
        )
        store: Any = SimpleNamespace(
            failed_directories={}, directories=["/data"], cluster_id="cluster", directory_id=lambda path: _DIRECTORY
        )
        self.store = store
        controllers: Any = SimpleNamespace(ask_for_lifecycle=lambda request, done: self.asked.append((request, done)))
        runtime: Any = self
        quorum: Any = self.quorum
        self.life = BrokerLife(
            runtime,
            quorum,
            controllers,
            store,
            list,
            on_caught_up=lambda: self.told.append("caught up"),
            on_unfenced=lambda: self.told.append("unfenced"),
        )

    def call_later(self, seconds: float, do: Any) -> Any:
        timer = SimpleNamespace(seconds=seconds, do=do, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    @property
    def timer(self) -> Any:
        """The one timer that runs."""
        (timer,) = [each for each in self.timers if not each.cancelled]
        return timer

    def wait(self) -> float:
        """Until the timer is due."""
        timer = self.timer
        timer.cancel()
        self.clock.advance(int(timer.seconds * 1000))
        timer.do()
        return float(timer.seconds)

    def answer(self, response: Any) -> Any:
        """Answer the last request, which must be the only one that is under way; return it."""
        ((request, done),) = self.asked
        self.asked.clear()
        done(response)
        return request

    def beat(self, **response: Any) -> BrokerHeartbeatRequest:
        request = self.answer(BrokerHeartbeatResponse(**({"is_caught_up": True} | response)))
        assert isinstance(request, BrokerHeartbeatRequest)
        return request

    def run(self) -> None:
        """Up to a broker that serves."""
        self.life.begin()
        assert isinstance(self.answer(BrokerRegistrationResponse(broker_epoch=70)), BrokerRegistrationRequest)
        self.beat(is_fenced=True)
        self.life.recovered()
        self.beat(is_fenced=False)
        assert self.told == ["caught up", "unfenced"] and self.life.state == LifeState.RUNNING
        self.told.clear()


def test_a_broker_registers_beats_and_serves() -> None:
    scene = _Scene()
    assert (scene.life.state, scene.life.epoch) == (LifeState.NOT_RUNNING, -1)
    scene.life.begin()
    registered = scene.answer(BrokerRegistrationResponse(broker_epoch=70))
    assert (registered.broker_id, registered.cluster_id, registered.log_dirs, registered.previous_broker_epoch) == (
        1,
        "cluster",
        [parse_uuid(_DIRECTORY)],
        -1,
    )
    assert (scene.life.state, scene.life.epoch) == (LifeState.STARTING, 70)
    first = scene.beat(is_fenced=True)
    assert (first.broker_id, first.broker_epoch, first.current_metadata_offset, first.want_fence) == (1, 70, 40, True)
    assert (scene.told, scene.life.state) == (["caught up"], LifeState.RECOVERY)
    scene.life.recovered()
    assert scene.beat(is_fenced=False).want_fence is False
    assert (scene.told, scene.life.state) == (["caught up", "unfenced"], LifeState.RUNNING)
    assert scene.wait() == scene.settings.broker_heartbeat_interval_ms / 1000
    scene.life.directory_failed(Uuid(bytes([5] * 16)))
    assert scene.beat(is_fenced=False).offline_log_dirs == []
    # The failed directory goes with the next one, at once.
    assert scene.beat(is_fenced=False).offline_log_dirs == [Uuid(bytes([5] * 16))]
    scene.life.cordoned([Uuid(bytes([7] * 16)), Uuid(bytes([6] * 16))])
    assert scene.beat(is_fenced=False).cordoned_log_dirs == [Uuid(bytes([6] * 16)), Uuid(bytes([7] * 16))]


@pytest.mark.parametrize("is_offline", [False, True])
def test_a_clean_stop_is_told_unless_a_directory_is_missing(is_offline: bool) -> None:
    """The records of a directory that does not work may be gone."""
    scene = _Scene()
    file = scene.disk.open("/data/.kafka_cleanshutdown", create=True)
    file.write(b'{"version":0,"brokerEpoch":33}', 0)
    if is_offline:
        scene.store.failed_directories["/more"] = OSError()
    scene.life.begin()
    assert scene.asked[0][0].previous_broker_epoch == (-1 if is_offline else 33)


_NEEDS = "start a version of the program that runs it, or set the cluster's level before it joins"


@pytest.mark.parametrize(
    ("features", "refusal", "said"),
    [
        (
            {"metadata.version": 7, "share.version": 9},
            KafkaError(ErrorCode.UNSUPPORTED_VERSION),
            f"UNSUPPORTED_VERSION: the cluster is at share.version 9, and this broker runs 0 to 1: {_NEEDS}",
        ),
        (
            {"metadata.version": 6},
            KafkaError(ErrorCode.UNSUPPORTED_VERSION),
            f"UNSUPPORTED_VERSION: the cluster is at metadata.version 6, and this broker runs 7 to {{}}: {_NEEDS}",
        ),
        (
            {"future.version": 1},
            KafkaError(ErrorCode.UNSUPPORTED_VERSION),
            f"UNSUPPORTED_VERSION: the cluster is at future.version 1, and this broker runs 0 to 0: {_NEEDS}",
        ),
        (
            {"metadata.version": 7, "future.version": 0},
            KafkaError(ErrorCode.UNSUPPORTED_VERSION, "too old"),
            "UNSUPPORTED_VERSION: too old",
        ),
        (
            {"share.version": 9},
            KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION),
            "DUPLICATE_BROKER_REGISTRATION: This broker ID is already in use.",
        ),
    ],
)
def test_a_broker_that_is_refused_for_too_long_ends_with_the_reason(
    features: dict[str, int], refusal: KafkaError, said: str
) -> None:
    scene = _Scene()
    scene.quorum.image.features = features
    scene.life.begin()
    newest = next(each for each in scene.asked[0][0].features if each.name == "metadata.version").max_supported_version
    said = said.format(newest)
    scene.answer(refusal)
    assert (scene.life.last_error_text, scene.told) == (said, [])
    assert scene.wait() == scene.settings.broker_heartbeat_interval_ms / 1000
    scene.clock.advance(_REGISTRATION_MS)
    scene.quorum.trouble = "h:1 refused"
    scene.answer(refusal)
    ((what, why),) = scene.told
    assert what == "failed" and why.endswith(f": {said} (h:1 refused)")
    assert scene.life.state == LifeState.SHUTTING_DOWN and scene.asked == []


def test_a_heartbeat_that_fails_is_remembered_and_sent_again() -> None:
    scene = _Scene()
    scene.run()
    assert scene.life.last_error_text == ""
    scene.wait()
    scene.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert scene.life.last_error_text.startswith("REQUEST_TIMED_OUT: ")
    assert scene.wait() == scene.settings.broker_heartbeat_interval_ms / 1000
    # A controller that does not know the broker gets its registration again.
    scene.answer(KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED))
    scene.wait()
    assert isinstance(scene.asked[0][0], BrokerRegistrationRequest)


def test_a_heartbeat_for_which_no_descriptor_is_left_is_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the request is imported for the first heartbeat."""
    scene = _Scene()
    scene.run()

    def breaks(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(SendHeartbeat, "request", breaks)
        scene.wait()
    assert scene.asked == []
    assert "Too many open files" in scene.life.last_error_text
    assert scene.wait() == scene.settings.broker_heartbeat_interval_ms / 1000
    scene.beat(is_fenced=False)
    assert not [each for each in scene.told if each[0] == "failed"]


@pytest.mark.parametrize(
    ("leader", "others", "at_once"),
    [(1, {}, True), (1, {2: True}, False), (1, {2: False}, False), (2, {}, False), (None, {}, False)],
)
def test_a_stop_gives_up_what_others_may_lead_later(leader: int | None, others: dict[int, bool], at_once: bool) -> None:
    scene = _Scene()
    scene.run()
    scene.quorum.leader = None if leader is None else SimpleNamespace(node_id=leader)
    scene.quorum.image.brokers = {
        broker: SimpleNamespace(broker_id=broker, fenced=fenced) for broker, fenced in ({1: False} | others).items()
    }
    scene.quorum.decided.brokers = scene.quorum.image.brokers
    scene.life.stop(lambda: scene.told.append("stopped"))
    assert scene.told == (["stopped"] if at_once else [])
    if not at_once:
        assert scene.beat(is_fenced=False).want_shut_down
        scene.wait()
        assert scene.beat(should_shut_down=True).want_shut_down
        assert scene.told == ["stopped"]
    assert scene.asked == []


@pytest.mark.parametrize(
    ("leader", "registered", "alone"),
    [(1, (), True), (1, (1,), True), (1, (1, 2), False), (2, (1,), False), (None, (), False)],
)
def test_a_node_is_alone_if_it_leads_and_no_other_broker_is_registered(
    leader: int | None, registered: tuple[int, ...], alone: bool
) -> None:
    scene = _Scene()
    scene.quorum.leader = None if leader is None else SimpleNamespace(node_id=leader)
    scene.quorum.decided.brokers = dict.fromkeys(registered)
    assert scene.life.is_alone is alone


def test_the_only_node_joins_its_own_cluster() -> None:
    scene = _Scene()
    joined: list[Any] = []
    scene.quorum.join, scene.quorum.broker_epoch = joined.append, 12
    scene.life.join()
    assert (len(joined), scene.life.epoch, scene.told) == (1, 12, ["unfenced"])
    assert scene.timer.seconds == scene.settings.broker_heartbeat_interval_ms / 1000


def test_directories_that_are_registered_later_are_tried_until_a_controller_takes_them() -> None:
    scene = _Scene()
    scene.run()
    scene.timer.cancel()
    scene.life.register_again()
    scene.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert scene.wait() == 1.0
    scene.answer(BrokerRegistrationResponse(broker_epoch=70))
    assert all(each.cancelled for each in scene.timers)
    scene.life.register_again()
    scene.life.close()
    scene.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    scene.life.register_again()
    assert scene.asked == [] and all(each.cancelled for each in scene.timers)


def test_nothing_is_sent_after_the_end() -> None:
    scene = _Scene()
    scene.run()
    timer = scene.timer
    scene.life.close()
    assert timer.cancelled
    scene.life.directory_failed(Uuid(bytes([5] * 16)))
    assert scene.asked == [] and all(each.cancelled for each in scene.timers)


@pytest.mark.parametrize("serves", [False, True])
def test_a_request_that_the_end_cuts_off_is_no_failure(serves: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A node closes its connections after its life: a clean stop must not warn of a heartbeat."""
    caplog.set_level("INFO")
    scene = _Scene()
    if serves:
        scene.run()
        scene.wait()
    else:
        scene.life.begin()
    scene.life.close()
    assert isinstance(scene.asked[0][0], BrokerHeartbeatRequest if serves else BrokerRegistrationRequest)
    scene.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the node stops"))
    assert (caplog.messages, scene.life.last_error_text) == ([], "")


@pytest.mark.parametrize("error", [None, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too slow")])
def test_a_failed_directory_that_no_controller_hears_of_ends_the_node_with_the_reason(error: KafkaError | None) -> None:
    scene = _Scene()
    scene.run()
    scene.life.directory_failed(Uuid(bytes([5] * 16)))
    if error is not None:
        scene.answer(error)
    while scene.life.state == LifeState.RUNNING:
        scene.wait()
    ((what, why),) = scene.told
    reason = "no controller was told in time that log directory BQUFBQUFBQUFBQUFBQUFBQ is offline"
    assert (what, why) == ("failed", reason if error is None else f"{reason}: REQUEST_TIMED_OUT: too slow")


def test_a_life_that_never_began_may_end() -> None:
    scene = _Scene()
    scene.life.close()
    scene.life.begin()
    assert (scene.asked, scene.timers, scene.life.state) == ([], [], LifeState.NOT_RUNNING)


@pytest.mark.parametrize("at", ["_on_caught_up", "_on_unfenced"])
def test_a_start_that_fails_in_the_middle_ends_the_node(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on sending heartbeats, or none, and serve nobody."""
    scene = _Scene()

    def breaks() -> None:
        raise OSError("broken")

    monkeypatch.setattr(scene.life, at, breaks)
    scene.life.begin()
    scene.answer(BrokerRegistrationResponse(broker_epoch=70))
    scene.beat(is_fenced=True)
    if at == "_on_unfenced":
        scene.life.recovered()
        scene.beat(is_fenced=False)
    assert scene.told[-1] == ("failed", "the broker cannot go on: broken")
    assert [each for each in scene.timers if not each.cancelled] == []


def test_the_only_node_raises_what_keeps_it_from_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _Scene()
    scene.quorum.join, scene.quorum.broker_epoch = lambda request: None, 12

    def breaks() -> None:
        raise OSError("broken")

    monkeypatch.setattr(scene.life, "_on_unfenced", breaks)
    with pytest.raises(OSError, match="broken"):
        scene.life.join()
    assert scene.told == []
