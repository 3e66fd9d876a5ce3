"""The controller: a request on wire classes -> the records to write, and the response.

Rules:
- The controller decides on one image and changes nothing. The driver appends the records, replays them into the next
  image, and sends the response when they are committed. The next request is decided on the next image.
- The records of a decision directly follow the image that it was made on, as one batch: a broker's epoch and the
  offsets that brokers must have read are computed from the image's offset.
- A request that fails as a whole raises KafkaError; partial failures are in the response.
- The controller reads no clock: `now_ms` is monotonic time. `deadline_ms` is when `time_passed` has work to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.controller import broker, directory, producer_ids
from ottla.controller.active import Active
from ottla.controller.decision import Decision, MutationQuota, unlimited
from ottla.controller.draft import Draft
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.kernel.now import earliest
from ottla.kernel.ports import Rng
from ottla.metadata.image import BROKER, BrokerImage, Image
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.controller import (
        acl,
        alter_partition,
        config,
        create_topics,
        delegation_token,
        delete_topics,
        election,
        heartbeat,
        quota,
        reassignment,
        scram,
        update_features,
    )
else:
    acl = LazyModule("ottla.controller.acl")
    alter_partition = LazyModule("ottla.controller.alter_partition")
    config = LazyModule("ottla.controller.config")
    create_topics = LazyModule("ottla.controller.create_topics")
    delegation_token = LazyModule("ottla.controller.delegation_token")
    delete_topics = LazyModule("ottla.controller.delete_topics")
    election = LazyModule("ottla.controller.election")
    heartbeat = LazyModule("ottla.controller.heartbeat")
    quota = LazyModule("ottla.controller.quota")
    reassignment = LazyModule("ottla.controller.reassignment")
    scram = LazyModule("ottla.controller.scram")
    update_features = LazyModule("ottla.controller.update_features")

#: The version of a request without one: newer than any that this program knows.
NEWEST = 32767
#: The number of partitions that a silent broker loses in one step, which takes a few milliseconds.
FENCED_AT_ONCE = 1000


class ControllerCall(NamedTuple):
    """A request with the context for its decision."""

    image: Image
    request: Any
    version: int
    charge: MutationQuota
    now_ms: int


class Controller:
    """The decisions for a cluster. `settings` are those of the local node; `rng` is for ids and placement."""

    def __init__(self, settings: ServerSettings, rng: Rng, cluster_id: str) -> None:
        self._settings = settings
        #: The settings with the dynamic configs of the last image that was asked about: the node's and the cluster's.
        self._settings_in_force = settings
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        self._rng = rng
        self._cluster_id = cluster_id
        self._active: Active | None = None
        #: The quorum's kraft.version, which is not a metadata record (KIP-853). The driver keeps it up to date.
        self.kraft_version = 1
        #: The ids of the quorum's voters. The driver keeps them up to date.
        self.voters: Sequence[int] = ()
        #: Return why the quorum cannot be raised to a kraft.version. The driver keeps it up to date.
        self.version_refusal: Callable[[int], str | None] = lambda _: None
        #: Wall-clock time, for the expiry of tokens. The driver keeps it up to date.
        self.wall_ms = 0
        self._tokens: delegation_token.TokenControl | None = None

    def activate(self, image: Image, now_ms: int) -> None:
        """Become the active controller; `image` covers everything that was appended."""
        self._active = Active(image, self._settings, now_ms)

    def resign(self) -> None:
        """Stop being the active controller and drop the volatile state."""
        self._active = None

    @property
    def is_active(self) -> bool:
        return self._active is not None

    def handle(
        self,
        image: Image,
        request: Any,
        version: int = NEWEST,
        charge: MutationQuota = unlimited,
        *,
        now_ms: int,
    ) -> Decision:
        """Decide a request on this image. Raise TypeError for a request that no controller handles."""
        command = _COMMANDS.get(type(request).__name__)
        if command is None:
            raise TypeError(f"the controller does not take {type(request).__name__}")
        return command(self, ControllerCall(image, request, version, charge, now_ms))

    def note_contact(self, broker: BrokerImage, now_ms: int) -> None:
        """Renew the session of the broker in this process, unless it has not sent a heartbeat since it was registered.

        An earlier process may have registered it: this one may read its logs for an hour, or have no broker at all.
        """
        if self._active is not None and self._active.state(broker).metadata_offset >= 0:
            self._active.sessions.touch(broker.broker_id, broker.epoch, now_ms)

    def deadline_ms(self) -> int | None:
        """Return when `time_passed` has work to do; None if no timer is running."""
        active = self._active
        if active is None:
            return None
        due = (active.sessions.deadline_ms(), active.preferred.due_ms, active.unclean.due_ms, active.tokens.due_ms)
        return earliest(due)

    def tokens_due_ms(self) -> int | None:
        """Return when expired tokens are due for removal: the only timer of a single-node cluster."""
        return None if self._active is None else self._active.tokens.due_ms

    def time_passed(self, image: Image, now_ms: int) -> Decision:
        """Do one due task, possibly without records. Call it again until `deadline_ms` is after `now_ms`."""
        draft = self._draft(image)
        active = draft.active
        if active.tokens.is_due(now_ms):
            expired = delegation_token.expired_tokens(image, self.wall_ms)
            active.tokens.done(now_ms, soon=len(expired) >= delegation_token.REMOVED_AT_ONCE)
            return Decision(expired, None, atomic=False)
        silent = active.sessions.expire(image, now_ms)
        if silent is not None:
            if not heartbeat.fence(draft, silent, FENCED_AT_ONCE):
                active.sessions.expire_soon(silent, now_ms)
        elif active.preferred.is_due(now_ms):
            election.elect_preferred(draft)
            active.preferred.done(now_ms, soon=len(draft.records) >= election.AT_ONCE)
        elif active.unclean.is_due(now_ms):
            election.elect_unclean(draft)
            active.unclean.done(now_ms, soon=len(draft.records) >= election.AT_ONCE)
        return Decision(draft.records, None, atomic=False)

    def _in_force(self, image: Image) -> ServerSettings:
        """Return this node's settings with the dynamic configs in the image, except those that do not fit its file."""
        dynamic = image.config(BROKER, str(self._settings.node_id)), image.config(BROKER, "")
        if self._dynamic is None or any(old is not new for old, new in zip(self._dynamic, dynamic, strict=True)):
            self._dynamic, self._settings_in_force = dynamic, self._settings.with_fitting(*dynamic)[0]
        return self._settings_in_force

    def _draft(self, image: Image) -> Draft:
        assert self._active is not None, "only an active controller decides about brokers"
        return Draft(image, self._settings, self._active)

    # ---- requests, by name: rare commands are imported on first use

    def _create_topics(self, call: ControllerCall) -> Decision:
        return create_topics.create_topics(call.image, self._in_force(call.image), self._rng, call.request, call.charge)

    def _delete_topics(self, call: ControllerCall) -> Decision:
        return delete_topics.delete_topics(call.image, self._settings, call.request, call.version, call.charge)

    def _create_partitions(self, call: ControllerCall) -> Decision:
        return create_topics.create_partitions(call.image, self._rng, call.request, call.charge)

    def _incremental_alter_configs(self, call: ControllerCall) -> Decision:
        return config.incremental_alter_configs(call.image, self._in_force(call.image), self.voters, call.request)

    def _alter_configs(self, call: ControllerCall) -> Decision:
        return config.alter_configs(call.image, self._in_force(call.image), self.voters, call.request)

    def _direct_change(self, call: ControllerCall) -> Decision:
        return config.direct_change(call.image, self._in_force(call.image), self.voters, call.request)

    def _allocate_producer_ids(self, call: ControllerCall) -> Decision:
        return producer_ids.allocate_producer_ids(call.image, call.request)

    def _elect_leaders(self, call: ControllerCall) -> Decision:
        return election.elect_leaders(self._draft(call.image), call.request)

    def _alter_reassignments(self, call: ControllerCall) -> Decision:
        return reassignment.alter_reassignments(self._draft(call.image), call.request)

    def _list_reassignments(self, call: ControllerCall) -> Decision:
        return reassignment.list_reassignments(call.image, call.request)

    def _update_features(self, call: ControllerCall) -> Decision:
        quorum = update_features.QuorumLevel(self.kraft_version, self.voters, self.version_refusal)
        return update_features.update_features(call.image, self._settings, quorum, call.request, call.version)

    def _alter_client_quotas(self, call: ControllerCall) -> Decision:
        return quota.alter_client_quotas(call.image, call.request)

    def _alter_scram(self, call: ControllerCall) -> Decision:
        return scram.alter_user_scram_credentials(call.image, call.request)

    def _delegation_token(self, call: ControllerCall) -> Decision:
        if self._tokens is None:
            self._tokens = delegation_token.TokenControl(self._settings, self._rng)
        return self._tokens.decide(call.image, call.request, self.wall_ms)

    def _create_acls(self, call: ControllerCall) -> Decision:
        return acl.create_acls(call.image, self._rng, call.request)

    def _delete_acls(self, call: ControllerCall) -> Decision:
        return acl.delete_acls(call.image, call.request)

    def _assign_replicas(self, call: ControllerCall) -> Decision:
        return directory.assign_replicas(self._draft(call.image), call.request)

    def _unregister_broker(self, call: ControllerCall) -> Decision:
        return broker.unregister_broker(self._draft(call.image), call.request)

    def _register_broker(self, call: ControllerCall) -> Decision:
        draft, cluster_id = self._draft(call.image), self._cluster_id
        return broker.register_and_clean_up(
            draft, cluster_id, self.kraft_version, call.request, call.version, call.now_ms
        )

    def _register_controller(self, call: ControllerCall) -> Decision:
        return broker.register_controller(call.image, call.request)

    def _broker_heartbeat(self, call: ControllerCall) -> Decision:
        return heartbeat.broker_heartbeat(self._draft(call.image), call.request, call.now_ms)

    def _alter_partition(self, call: ControllerCall) -> Decision:
        return alter_partition.alter_partition(self._draft(call.image), call.request, call.version)


_COMMANDS: dict[str, Callable[[Controller, ControllerCall], Decision]] = {
    "AllocateProducerIdsRequest": Controller._allocate_producer_ids,
    "AlterClientQuotasRequest": Controller._alter_client_quotas,
    "AlterConfigsRequest": Controller._alter_configs,
    "AlterPartitionReassignmentsRequest": Controller._alter_reassignments,
    "AlterPartitionRequest": Controller._alter_partition,
    "AlterUserScramCredentialsRequest": Controller._alter_scram,
    "AssignReplicasToDirsRequest": Controller._assign_replicas,
    "BrokerHeartbeatRequest": Controller._broker_heartbeat,
    "BrokerRegistrationRequest": Controller._register_broker,
    "ControllerRegistrationRequest": Controller._register_controller,
    "CreateAclsRequest": Controller._create_acls,
    "CreatePartitionsRequest": Controller._create_partitions,
    "CreateTopicsRequest": Controller._create_topics,
    "DeleteAclsRequest": Controller._delete_acls,
    "DeleteTopicsRequest": Controller._delete_topics,
    "DirectChange": Controller._direct_change,
    "ElectLeadersRequest": Controller._elect_leaders,
    "IncrementalAlterConfigsRequest": Controller._incremental_alter_configs,
    "ListPartitionReassignmentsRequest": Controller._list_reassignments,
    "TokenCommand": Controller._delegation_token,
    "UnregisterBrokerRequest": Controller._unregister_broker,
    "UpdateFeaturesRequest": Controller._update_features,
}
