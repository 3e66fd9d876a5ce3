"""The client suite runs against our node, and (marked `interop`) against Apache Kafka: one server of each a run."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

import pytest

import ottla
from ottla.client import (
    Admin,
    CommittedOffset,
    ConfigResource,
    ErrorCode,
    KafkaError,
    OffsetSpec,
    ResourceType,
    TopicPartition,
)
from tests.interop import server as servers

_names = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap" in metafunc.fixturenames:
        kinds = ["ottla", pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.timeout(180)])]
        metafunc.parametrize("bootstrap", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server of the kind that the parameter names can be reached."""
    if request.param == "ottla":
        quick = {
            f"group.{kind}.{least}heartbeat.interval.ms": "1000"
            for kind in ("consumer", "share")
            for least in ("", "min.")
        }
        with ottla.Node(settings={**servers.KEPT, **quick}) as node:
            yield node.bootstrap_servers
        return
    # Members that a busy machine holds up stay in their groups.
    kinds = ("consumer", "share", "streams")
    patient = {**servers.HELD, **{f"group.{each}.session.timeout.ms": "45000" for each in kinds}}
    server = servers.Server(servers.apache(), tmp_path_factory.mktemp("apache"), patient)
    server.start()
    try:
        yield server.bootstrap
    finally:
        server.stop()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test of this run uses, for a topic or a group."""
    return f"{request.node.originalname.removeprefix('test_')[:40]}-{next(_names)}"


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    """A topic of three partitions, each served by its leader (metadata of Apache's broker names a leader earlier)."""
    admin.create_topic(name, 3)
    admin.list_offsets({TopicPartition(name, number): OffsetSpec.LATEST for number in range(3)}).check()
    return name


def share_from_the_start(admin: Admin, group: str) -> None:
    """Return when the broker has it that this share group begins with the oldest records."""
    settings = ConfigResource(ResourceType.GROUP, group)
    admin.alter_config(settings, {"share.auto.offset.reset": "earliest"})
    eventually(lambda: admin.describe_config(settings)["share.auto.offset.reset"].value == "earliest")


def offsets(committed: Mapping[TopicPartition, CommittedOffset | None]) -> dict[TopicPartition, int | None]:
    """The offsets alone."""
    return {one: None if at is None else at.offset for one, at in committed.items()}


def eventually(holds: Callable[[], bool], timeout_s: float = 45.0) -> None:
    """Ask until it holds. Brokers learn of a change after the controller has confirmed it."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"


@contextmanager
def ctrl_c(after_s: float) -> Iterator[None]:
    """Ctrl-C, so long after the block began."""
    program = threading.main_thread().ident
    assert program is not None
    press = threading.Timer(after_s, signal.pthread_kill, (program, signal.SIGINT))
    press.start()
    try:
        yield
    finally:
        # A block that ended before is not interrupted any more.
        press.cancel()
        press.join()


def serves(admin: Admin, api: str) -> bool:
    """Does the cluster take this request at all? Where it does not, the client's error must say so."""
    return all(api in versions for versions in admin.api_versions().values())


def refusal(call: Callable[[], object]) -> ErrorCode:
    """The code with which a call fails; it must."""
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code
