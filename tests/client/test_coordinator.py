"""Which broker a client takes for a coordinator, without a socket; and what ends the wait of a consumer's poll."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.connection.cluster import Cluster
from ottla.client.connection.metadata import ClusterNode
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1


class _Found(Cluster):
    """A cluster whose any broker names node 7, and whose connections are the hosts that they go to."""

    def __init__(self, version: int = 4) -> None:
        super().__init__(ConsumerSettings.read("127.0.0.1:1", {"request_timeout_ms": 1234}))
        self.version = version
        self.code = ErrorCode.NONE
        self.asked: list[FindCoordinatorRequest] = []
        self.opened: list[tuple[str, int, str]] = []
        self.is_down = False

    async def any(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(version_of=lambda _: self.version, call=self._answer)

    async def _answer(self, request: Any, response: Any, *, timeout_ms: int, version: int) -> FindCoordinatorResponse:
        assert (response, timeout_ms, version) == (FindCoordinatorResponse, 1234, self.version)
        self.asked.append(request)
        if version >= 4:
            (key,) = request.coordinator_keys
            one = Coordinator(key=key, node_id=7, host="here", port=9, error_code=self.code, error_message="why")
            return FindCoordinatorResponse(coordinators=[one])
        return FindCoordinatorResponse(node_id=7, host="here", port=9, error_code=self.code, error_message="why")

    async def address(self, address: tuple[str, int], purpose: str = "") -> Any:
        self.opened.append((*address, purpose))
        if self.is_down:
            raise NotReachable(f"{address} is down")
        return f"to {address[0]}"


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_is_asked_for_once_and_known_by_its_kind_and_key(version: int) -> None:
    async def run() -> None:
        cluster = _Found(version)
        assert cluster.coordinator_id(_GROUP, "g") is None
        for _ in range(2):
            assert cast(str, await cluster.coordinator(_GROUP, "g")) == "to here"
        assert cluster.opened == [("here", 9, "coordinator")] * 2
        assert (cluster.coordinator_id(_GROUP, "g"), cluster.coordinator_id(_TRANSACTION, "g")) == (7, None)
        (asked,) = cluster.asked
        assert asked.key_type == _GROUP
        assert (asked.coordinator_keys if version >= 4 else asked.key) == (["g"] if version >= 4 else "g")
        # Metadata had not named this broker yet; what it says of one that it knows is kept.
        assert cluster.metadata.nodes[7] == ClusterNode(7, "here", 9)
        cluster.metadata.nodes[7] = ClusterNode(7, "there", 10)
        await cluster.coordinator(_TRANSACTION, "g", "transactions")
        assert cluster.opened[-1] == ("here", 9, "transactions"), "it may have moved there since"
        assert cluster.metadata.nodes[7] == ClusterNode(7, "there", 10)

    asyncio.run(run())


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_that_is_refused_is_asked_for_again(version: int) -> None:
    async def run() -> None:
        cluster = _Found(version)
        cluster.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError, match="why"):
            await cluster.coordinator(_GROUP, "g")
        assert (cluster.coordinator_id(_GROUP, "g"), cluster.opened) == (None, [])
        cluster.code = ErrorCode.NONE
        await cluster.coordinator(_GROUP, "g")
        assert len(cluster.asked) == 2

    asyncio.run(run())


def test_a_coordinator_that_cannot_be_reached_is_asked_for_again() -> None:
    async def run() -> None:
        cluster = _Found()
        await cluster.coordinator(_GROUP, "other")
        cluster.is_down = True
        for count in (2, 3):
            with pytest.raises(NotReachable):
                await cluster.coordinator(_GROUP, "g")
            assert (len(cluster.asked), cluster.coordinator_id(_GROUP, "g")) == (count, None)
        assert cluster.coordinator_id(_GROUP, "other") == 7, "the others are not looked at"

    asyncio.run(run())


@pytest.mark.parametrize("ends", ["joined", "failed to join", "something to do", "no position yet"])
def test_a_poll_that_waits_looks_again_when_there_is_something_to_see(ends: str) -> None:
    async def run() -> None:
        position = 0 if ends != "no position yet" else None
        consumer: Any = SimpleNamespace(
            _waiting=None,
            _group=None,
            _positions={"t-0": SimpleNamespace(position=position)},
            settings=SimpleNamespace(retry_backoff_ms=1),
        )
        loop = asyncio.get_running_loop()
        joining: asyncio.Future[None] = loop.create_future()
        waiting = asyncio.ensure_future(AsyncConsumer._wait(consumer, 600_000, joining))
        if ends == "joined":
            loop.call_soon(joining.set_result, None)
        elif ends == "failed to join":
            loop.call_soon(joining.set_exception, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif ends == "something to do":
            loop.call_soon(AsyncConsumer.something_to_do, consumer)
        await asyncio.wait_for(waiting, 20)
        assert consumer._waiting is None
        assert joining.done() is ends.startswith(("joined", "failed"))
        if joining.done():
            joining.exception()

    asyncio.run(run())


def test_something_to_do_is_said_to_no_poll_that_waits_no_more() -> None:
    async def run() -> None:
        consumer: Any = SimpleNamespace(_waiting=None)
        AsyncConsumer.something_to_do(consumer)
        consumer._waiting = asyncio.get_running_loop().create_future()
        for _ in range(2):
            AsyncConsumer.something_to_do(consumer)
        assert consumer._waiting.done()

    asyncio.run(run())
