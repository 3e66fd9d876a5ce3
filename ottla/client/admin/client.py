"""The admin clients: `AsyncAdmin`, and its synchronous form `Admin` with the same calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from ottla.client.admin.acl import AclCalls
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.config import ConfigCalls
from ottla.client.admin.credential import CredentialCalls
from ottla.client.admin.quota import QuotaCalls
from ottla.client.admin.streams_group import StreamsGroupCalls
from ottla.client.admin.topic import TopicCalls
from ottla.client.admin.transaction import TransactionAdminCalls
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.loop_thread import loop_thread, needs_loop
from ottla.settings.client.client import AdminSettings
from ottla.settings.client.schema import Given

if TYPE_CHECKING:
    from ottla.client.settings.option import AdminOptions

P = ParamSpec("P")
R = TypeVar("R")


class AsyncAdmin(
    TopicCalls,
    ConfigCalls,
    StreamsGroupCalls,
    TransactionAdminCalls,
    AclCalls,
    QuotaCalls,
    CredentialCalls,
    ClusterCalls,
):
    """Kafka's admin client for asyncio.

    Create it on a running loop; `async with` or `close` ends it. A call raises TypeError or ValueError for an invalid
    argument, KafkaError for an error of the brokers, and NotReachable if no broker can be reached within
    default.api.timeout.ms.

    >>> async with AsyncAdmin("127.0.0.1:9092") as admin:
    ...     await admin.create_topic("flights", partitions=3)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[AdminOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """
        needs_loop("AsyncAdmin")
        self._settings = AdminSettings.read(settings, cast(Mapping[str, object], keywords))
        self._cluster = Cluster(self._settings)

    async def close(self) -> None:
        """Close the connections. Pending calls fail with ConnectionLost."""
        await self._cluster.close()

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _synchronous(method: Callable[Concatenate[AsyncAdmin, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """The synchronous form of a call, which waits for it on the loop thread."""

    @wraps(method)
    def call(self: Admin, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return cast(R, self._thread.run(cast(Any, method)(self._async, *arguments, **keywords)))

    return call


class Admin:
    """Kafka's admin client: the calls of `AsyncAdmin`, waited for. Any thread may use it; `with` or `close` ends it.

    A call raises TypeError or ValueError for an invalid argument, KafkaError for an error of the brokers, and
    NotReachable if no broker can be reached within default.api.timeout.ms.

    >>> with Admin("127.0.0.1:9092") as admin:
    ...     admin.create_topic("flights", partitions=3)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[AdminOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """

        async def make() -> AsyncAdmin:
            return AsyncAdmin(settings, **keywords)

        self._thread = loop_thread()
        self._async = self._thread.run(make())

    list_topics = _synchronous(AsyncAdmin.list_topics)
    describe_topics = _synchronous(AsyncAdmin.describe_topics)
    describe_topic = _synchronous(AsyncAdmin.describe_topic)
    create_topics = _synchronous(AsyncAdmin.create_topics)
    create_topic = _synchronous(AsyncAdmin.create_topic)
    delete_topics = _synchronous(AsyncAdmin.delete_topics)
    delete_topic = _synchronous(AsyncAdmin.delete_topic)
    create_partitions = _synchronous(AsyncAdmin.create_partitions)
    elect_leaders = _synchronous(AsyncAdmin.elect_leaders)

    describe_configs = _synchronous(AsyncAdmin.describe_configs)
    describe_config = _synchronous(AsyncAdmin.describe_config)
    alter_configs = _synchronous(AsyncAdmin.alter_configs)
    alter_config = _synchronous(AsyncAdmin.alter_config)
    list_config_resources = _synchronous(AsyncAdmin.list_config_resources)

    list_groups = _synchronous(AsyncAdmin.list_groups)
    describe_groups = _synchronous(AsyncAdmin.describe_groups)
    describe_group = _synchronous(AsyncAdmin.describe_group)
    delete_groups = _synchronous(AsyncAdmin.delete_groups)
    delete_group = _synchronous(AsyncAdmin.delete_group)
    remove_group_members = _synchronous(AsyncAdmin.remove_group_members)
    list_group_offsets = _synchronous(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _synchronous(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = _synchronous(AsyncAdmin.delete_group_offsets)
    group_lag = _synchronous(AsyncAdmin.group_lag)
    describe_share_group = _synchronous(AsyncAdmin.describe_share_group)
    list_share_group_offsets = _synchronous(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = _synchronous(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = _synchronous(AsyncAdmin.delete_share_group_offsets)
    describe_streams_group = _synchronous(AsyncAdmin.describe_streams_group)

    list_offsets = _synchronous(AsyncAdmin.list_offsets)
    list_offset = _synchronous(AsyncAdmin.list_offset)
    delete_records = _synchronous(AsyncAdmin.delete_records)
    alter_partition_reassignments = _synchronous(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _synchronous(AsyncAdmin.list_partition_reassignments)
    alter_replica_log_dirs = _synchronous(AsyncAdmin.alter_replica_log_dirs)
    describe_producers = _synchronous(AsyncAdmin.describe_producers)

    list_transactions = _synchronous(AsyncAdmin.list_transactions)
    describe_transactions = _synchronous(AsyncAdmin.describe_transactions)
    fence_producers = _synchronous(AsyncAdmin.fence_producers)
    terminate_transaction = _synchronous(AsyncAdmin.terminate_transaction)
    abort_transaction = _synchronous(AsyncAdmin.abort_transaction)

    describe_acls = _synchronous(AsyncAdmin.describe_acls)
    create_acls = _synchronous(AsyncAdmin.create_acls)
    delete_acls = _synchronous(AsyncAdmin.delete_acls)
    describe_client_quotas = _synchronous(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = _synchronous(AsyncAdmin.alter_client_quotas)
    describe_scram_credentials = _synchronous(AsyncAdmin.describe_scram_credentials)
    alter_scram_credentials = _synchronous(AsyncAdmin.alter_scram_credentials)
    create_delegation_token = _synchronous(AsyncAdmin.create_delegation_token)
    renew_delegation_token = _synchronous(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = _synchronous(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = _synchronous(AsyncAdmin.describe_delegation_tokens)

    describe_cluster = _synchronous(AsyncAdmin.describe_cluster)
    describe_log_dirs = _synchronous(AsyncAdmin.describe_log_dirs)
    describe_quorum = _synchronous(AsyncAdmin.describe_quorum)
    describe_features = _synchronous(AsyncAdmin.describe_features)
    add_raft_voter = _synchronous(AsyncAdmin.add_raft_voter)
    remove_raft_voter = _synchronous(AsyncAdmin.remove_raft_voter)
    update_features = _synchronous(AsyncAdmin.update_features)
    unregister_broker = _synchronous(AsyncAdmin.unregister_broker)
    api_versions = _synchronous(AsyncAdmin.api_versions)
    close = _synchronous(AsyncAdmin.close)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
