"""StreamsGroupHeartbeat (0): the whole protocol of streams groups in one request (KIP-1071).

Rules:
- Epoch 0 joins and brings the topology, -1 leaves; any other is the member's present epoch, or its previous one if the
  response with the present one was lost.
- The first topology is the group's. A member with an older one may join and is told so; a different one is refused.
- The group epoch rises when a member joins, leaves or changes its metadata, when the topics of the topology change,
  when the topology becomes ready or stops being so, and when a setting of the assignment changes.
- The response has the tasks if they changed, if the member joins, and if it claims other tasks, since the response with
  its tasks may have been lost. It has the endpoints if the member has not seen their latest change.
- A group of another kind gets GROUP_ID_NOT_FOUND, except an empty classic group, which is replaced.

Not obvious: internal topics are not created here. `StreamsHeartbeat` lists the missing ones, and the driver creates
them in the client's name when it sends the response.
"""

from dataclasses import replace

from ottla.coordinator.contract import Called
from ottla.group.deletion import group_tombstones
from ottla.group.event import StreamsHeartbeat
from ottla.group.metadata_hash import metadata_hash
from ottla.group.records.encode_streams import (
    streams_current_entry,
    streams_epoch_entry,
    streams_member_entry,
    streams_member_tombstones,
    topology_entry,
)
from ottla.group.state.classic import ClassicGroup
from ottla.group.state.consumer import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.group.state.shard import CommandContext
from ottla.group.state.streams import StreamsGroup, StreamsMember, TaskState, check_epoch
from ottla.group.streams.endpoint import endpoints
from ottla.group.streams.reconciliation import TaskGoal, reconcile_tasks
from ottla.group.streams.target import StreamsTarget, assignment_configs, streams_settings, update_streams_target
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topology.configuration import ConfiguredTopology, Status, configure, invalid
from ottla.group.topology.task import TaskEpochs, Tasks, TaskSet, read_tasks
from ottla.group.topology.topology import Topology, read_topology
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import streams_group_heartbeat as api

#: Apache Kafka's number, not a setting.
_REFRESH_INTERVAL_MS = 2_147_483_647
#: The subtopologies of a topology and the topics that they name. They are worked out in one step of the loop.
_TOPOLOGY_PARTS_MAX = 10_000


def streams_heartbeat(context: CommandContext, call: Called) -> None:
    """Handle a heartbeat: join, leave, or continue."""
    request: api.StreamsGroupHeartbeatRequest = call.request
    _check_request(request)
    if request.member_epoch == LEAVE_EPOCH:
        _leave(context, call)
    else:
        _continue(context, call)


# -- validation


def _check_request(request: api.StreamsGroupHeartbeatRequest) -> None:
    problem = _unsupported(request) or _empty_name(request)
    if not problem and request.member_epoch == 0:
        problem = _join_problem(request)
    if not problem and request.member_epoch < LEAVE_EPOCH:
        # Static members cannot join, so none can leave temporarily.
        problem = "InstanceId can't be null."
        if request.member_epoch != LEAVE_STATIC_EPOCH:
            problem = f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    given = [tasks is not None for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)]
    if not problem and any(given) and not all(given):
        problem = "If one task-type is non-null, all must be non-null."
    if not problem and request.member_epoch != 0 and request.topology is not None:
        problem = "Topology can only be provided when (re-)joining."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _unsupported(request: api.StreamsGroupHeartbeatRequest) -> str:
    """The problem with a feature that the protocol has and Kafka 4.3 does not support, or ""."""
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if request.task_offsets is not None:
        return "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        return "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        return "WarmupTasks are not supported yet."
    if request.topology is not None and any(
        subtopology.source_topic_regex for subtopology in request.topology.subtopologies
    ):
        return "Regular expressions for source topics are not supported yet."
    return ""


def _empty_name(request: api.StreamsGroupHeartbeatRequest) -> str:
    for field, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            return f"{field} can't be empty."
    return ""


def _join_problem(request: api.StreamsGroupHeartbeatRequest) -> str:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    for field, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            return f"{field} must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    if _parts(request.topology) > _TOPOLOGY_PARTS_MAX:
        return f"Topology must have at most {_TOPOLOGY_PARTS_MAX} subtopologies and topics."
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )
    return ""


def _parts(topology: api.Topology) -> int:
    topics = (
        (each.source_topics, each.state_changelog_topics, each.repartition_sink_topics, each.repartition_source_topics)
        for each in topology.subtopologies
    )
    return len(topology.subtopologies) + sum(len(names) for lists in topics for names in lists)


# -- leaving


def _leave(context: CommandContext, call: Called) -> None:
    request: api.StreamsGroupHeartbeatRequest = call.request
    group = context.shard.groups.get(request.group_id)
    if not isinstance(group, StreamsGroup):
        raise not_a_streams_group(request.group_id, group, what="Group")
    member = group.member(request.member_id)
    if request.shutdown_application:
        _shut_down(group, request.member_id)
    fence_streams_member(context, group, member)
    response = api.StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, status=[]
    )
    context.answer(call.ticket, StreamsHeartbeat(response))


def not_a_streams_group(group_id: str, group: object, what: str = "Streams group") -> KafkaError:
    """The error for a missing group or one of another kind."""
    text = f"{what} {group_id} not found." if group is None else f"Group {group_id} is not a streams group."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _shut_down(group: StreamsGroup, member_id: str) -> None:
    """Have every member shut down; the first one that asked is named."""
    group.shutdown_member = group.shutdown_member or member_id


# -- joining and continuing


def _continue(context: CommandContext, call: Called) -> None:
    request: api.StreamsGroupHeartbeatRequest = call.request
    group = _group_for(context, request)
    claimed = _claimed(request)
    if request.member_epoch == 0:
        before = group.members.get(request.member_id) or StreamsMember(request.member_id)
    else:
        before = group.member(request.member_id)
        check_epoch(before, request.member_epoch, claimed)
    after = _updated_member(before, call)
    if after != before:
        context.append(streams_member_entry(group.group_id, after))
    topology = _topology(context, group, request)
    epoch, configured = _bump_group_epoch(context, group, topology, claimed, changed=after != before)
    _begin_initial_delay(context, group)
    target = update_streams_target(context, group, after, epoch, configured)
    member = _advance(context, group, after, target, claimed)
    _keep_session(context, group, member.member_id)
    if request.shutdown_application:
        _shut_down(group, member.member_id)
    changed = request.member_epoch == 0 or before.assigned != member.assigned
    if changed and member.endpoint is not None:
        group.endpoint_epoch += 1
    with_tasks = changed or (claimed is not None and claimed != member.assigned.as_target())
    response = _response(context, group, member, request, with_tasks=with_tasks)
    response.status = _statuses(group, after, target, configured)
    context.answer(call.ticket, StreamsHeartbeat(response, configured.missing))


def _group_for(context: CommandContext, request: api.StreamsGroupHeartbeatRequest) -> StreamsGroup:
    """The group; a join creates it if missing, or replaces an empty classic group."""
    joins = request.member_epoch == 0
    known = context.shard.groups.get(request.group_id)
    if isinstance(known, ClassicGroup) and known.is_empty and joins:
        context.extend(group_tombstones(known))
    elif known is not None or not joins:
        if not isinstance(known, StreamsGroup):
            raise not_a_streams_group(request.group_id, known)
        size_max = context.settings.group_streams_max_size
        if joins and len(known.members) >= size_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {size_max} members.",
            )
        return known
    return StreamsGroup(request.group_id)


def _claimed(request: api.StreamsGroupHeartbeatRequest) -> TaskSet | None:
    """The tasks that the member says it owns; None if the request does not say."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskSet(
        read_tasks(request.active_tasks), read_tasks(request.standby_tasks), read_tasks(request.warmup_tasks)
    )


def _updated_member(before: StreamsMember, call: Called) -> StreamsMember:
    """The member with the metadata of the request; null means unchanged."""
    request: api.StreamsGroupHeartbeatRequest = call.request
    endpoint = before.endpoint
    if request.user_endpoint is not None:
        endpoint = (request.user_endpoint.host, request.user_endpoint.port)
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=call.client_id,
        client_host=call.client_host,
        process_id=before.process_id if request.process_id is None else request.process_id,
        client_tags=before.client_tags
        if request.client_tags is None
        else {tag.key: tag.value for tag in request.client_tags},
        endpoint=endpoint,
    )


def _topology(context: CommandContext, group: StreamsGroup, request: api.StreamsGroupHeartbeatRequest) -> Topology:
    """The group's topology, which the first member brings."""
    if request.topology is None:
        if group.topology is None:
            # The record was lost when the log was truncated; a joining member brings the topology again.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no topology.")
        return group.topology
    brought = read_topology(request.topology)
    if group.topology is None:
        context.append(topology_entry(group.group_id, brought))
        return brought
    if group.topology.epoch <= brought.epoch and not group.topology.is_same_as(brought):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return group.topology


def _bump_group_epoch(
    context: CommandContext, group: StreamsGroup, topology: Topology, claimed: TaskSet | None, *, changed: bool
) -> tuple[int, ConfiguredTopology]:
    """(the new group epoch, the topology checked against the topics). Writes the epoch if it rises."""
    configured = group.configured
    fresh_hash = group.metadata_hash
    if group.topology is None or configured is None or group.refresh_is_due(context.monotonic_ms):
        fresh_hash = metadata_hash(topology.required_topics, context.shard.topics)
        if group.topology is None or configured is None or fresh_hash != group.metadata_hash:
            configured = configure(topology, context.shard.topics)
    if configured.is_ready:
        _check_tasks(configured, claimed)
    validated = topology.epoch if configured.is_ready else -1
    configs = assignment_configs(context, group.group_id)
    epoch = group.epoch
    if (
        changed
        or fresh_hash != group.metadata_hash
        or validated != group.validated_topology_epoch
        or configs != group.assignment_configs
    ):
        epoch += 1
        context.append(streams_epoch_entry(group.group_id, epoch, fresh_hash, validated, configs))
    group.configured = configured
    group.refresh_deadline_ms = context.monotonic_ms + _REFRESH_INTERVAL_MS
    # If this record is lost, the epoch in memory stays behind and the refresh is due again.
    group.refresh_epoch = epoch
    return epoch, configured


def _check_tasks(configured: ConfiguredTopology, claimed: TaskSet | None) -> None:
    for tasks in () if claimed is None else (claimed.active, claimed.standby, claimed.warmup):
        for subtopology, partitions in tasks.items():
            known = configured.subtopologies.get(subtopology)
            if known is None:
                text = f"Subtopology {subtopology} does not exist in the topology."
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            for partition in partitions:
                if not 0 <= partition < known.tasks:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {subtopology} is invalid. "
                        f"Number of tasks for this subtopology: {known.tasks}",
                    )


def _begin_initial_delay(context: CommandContext, group: StreamsGroup) -> None:
    """Start the initial delay of a new group: members that join within it get their tasks together."""
    delay_ms = streams_settings(context, group.group_id).initial_rebalance_delay_ms
    key = TimerKey(Alarm.STREAMS_INITIAL, group.group_id)
    if group.is_empty and delay_ms > 0 and key not in context.timers:
        context.alarm_in(key, delay_ms)


def _advance(
    context: CommandContext, group: StreamsGroup, member: StreamsMember, target: StreamsTarget, claimed: TaskSet | None
) -> StreamsMember:
    """The member after its next step towards its target, which is written."""
    if member.is_reconciled_to(target.assignment_epoch):
        return member
    goal = TaskGoal(target.assignment_epoch, target.tasks, group.may_take, claimed)
    advanced = reconcile_tasks(member, goal)
    if advanced != member:
        context.append(streams_current_entry(group.group_id, advanced))
        key = TimerKey(Alarm.REBALANCE, group.group_id, member.member_id)
        if advanced.state is TaskState.UNREVOKED_TASKS:
            context.alarm_in(key, advanced.rebalance_timeout_ms)
        else:
            context.timers.cancel(key)
    return advanced


# -- response


def _response(
    context: CommandContext,
    group: StreamsGroup,
    member: StreamsMember,
    request: api.StreamsGroupHeartbeatRequest,
    *,
    with_tasks: bool,
) -> api.StreamsGroupHeartbeatResponse:
    response = api.StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=streams_settings(context, group.group_id).heartbeat_interval_ms,
    )
    if with_tasks:
        response.active_tasks = _task_ids(member.assigned.active)
        response.standby_tasks = _task_ids(member.assigned.standby)
        response.warmup_tasks = _task_ids(member.assigned.warmup)
    if group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = endpoints(group, member, context.shard.topics)
    if group.group_id in context.shard.groups:
        # Before the first record is replayed this group object is temporary, and so is its endpoint epoch.
        response.endpoint_information_epoch = group.endpoint_epoch
    return response


def _task_ids(tasks: Tasks | TaskEpochs) -> list[api.TaskIds]:
    return [
        api.TaskIds(subtopology_id=subtopology, partitions=sorted(partitions))
        for subtopology, partitions in sorted(tasks.items())
    ]


def _statuses(
    group: StreamsGroup, member: StreamsMember, target: StreamsTarget, configured: ConfiguredTopology
) -> list[api.Status]:
    statuses: list[tuple[Status, str]] = []
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
        statuses.append((Status.STALE_TOPOLOGY, f"{text} {group.topology.epoch}."))
    if target.delay:
        statuses.append((Status.ASSIGNMENT_DELAYED, target.delay))
    if configured.problem is not None:
        statuses.append((configured.problem.status, configured.problem.detail))
    if group.shutdown_member is not None:
        text = "encountered a fatal error and requested a shutdown for the entire application."
        statuses.append((Status.SHUTDOWN_APPLICATION, f"Streams group member {group.shutdown_member} {text}"))
    return [api.Status(status_code=status, status_detail=detail) for status, detail in statuses]


# -- sessions


def _keep_session(context: CommandContext, group: StreamsGroup, member_id: str) -> None:
    """Restart the member's session."""
    timeout_ms = streams_settings(context, group.group_id).session_timeout_ms
    context.alarm_in(TimerKey(Alarm.SESSION, group.group_id, member_id), timeout_ms)


def start_streams_sessions(context: CommandContext, group: StreamsGroup) -> None:
    """Restart the deadlines of all members after the log is loaded."""
    for member_id, member in group.members.items():
        _keep_session(context, group, member_id)
        if member.state is TaskState.UNREVOKED_TASKS:
            key = TimerKey(Alarm.REBALANCE, group.group_id, member_id)
            context.alarm_in(key, member.rebalance_timeout_ms)


def streams_deadline(context: CommandContext, group: StreamsGroup, key: TimerKey) -> None:
    """Fence a member whose session or rebalance timeout has passed."""
    member = group.members.get(key.member_id)
    if member is None:
        return
    if key.alarm is Alarm.SESSION or (key.alarm is Alarm.REBALANCE and member.state is TaskState.UNREVOKED_TASKS):
        fence_streams_member(context, group, member)


def fence_streams_member(context: CommandContext, group: StreamsGroup, member: StreamsMember) -> None:
    """Remove a member: the group epoch rises, and its tasks go to the others."""
    context.extend(streams_member_tombstones(group.group_id, member.member_id))
    context.append(
        streams_epoch_entry(
            group.group_id,
            group.epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
    )
    for alarm in (Alarm.SESSION, Alarm.REBALANCE):
        context.timers.cancel(TimerKey(alarm, group.group_id, member.member_id))
