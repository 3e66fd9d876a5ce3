"""The target assignment of a streams group, computed when the group epoch has risen.

Rules:
- A new group waits `group.streams.initial.rebalance.delay.ms` for more members. After that at most one target is
  computed per `group.streams.assignment.interval.ms`; until then the last one applies, and members are told so.
- No tasks are assigned while the topology is not ready.
- Only changed targets are written.
"""

from collections.abc import Mapping

from ottla.group.records.encode_streams import streams_assignment_epoch_entry, streams_target_entry
from ottla.group.state.shard import CommandContext
from ottla.group.state.streams import NO_TASKS, StreamsGroup, StreamsMember
from ottla.group.streams.assignor import Worker, assign_sticky
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topology.configuration import ConfiguredTopology
from ottla.group.topology.task import TaskSet
from ottla.kernel.frozen import frozen

STANDBYS = "num.standby.replicas"


@frozen
class StreamsTarget:
    """The target of one member."""

    assignment_epoch: int
    tasks: TaskSet
    #: Why there is no newer target yet, or "".
    delay: str = ""


@frozen
class StreamsSettings:
    """The effective settings of one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    num_standby_replicas: int


def streams_settings(context: CommandContext, group_id: str) -> StreamsSettings:
    """The group's own settings, with the broker's as defaults."""
    own, broker = context.shard.override(group_id), context.settings

    def first(value: int | None, otherwise: int) -> int:
        return otherwise if value is None else value

    return StreamsSettings(
        first(own.streams_session_timeout_ms, broker.group_streams_session_timeout_ms),
        first(own.streams_heartbeat_interval_ms, broker.group_streams_heartbeat_interval_ms),
        first(own.streams_assignment_interval_ms, broker.group_streams_assignment_interval_ms),
        first(own.streams_initial_rebalance_delay_ms, broker.group_streams_initial_rebalance_delay_ms),
        first(own.streams_num_standby_replicas, broker.group_streams_num_standby_replicas),
    )


def assignment_configs(context: CommandContext, group_id: str) -> dict[str, str]:
    """The settings that an assignment depends on."""
    return {STANDBYS: str(streams_settings(context, group_id).num_standby_replicas)}


def update_streams_target(
    context: CommandContext, group: StreamsGroup, member: StreamsMember, epoch: int, configured: ConfiguredTopology
) -> StreamsTarget:
    """The target of this member, computing a new one if it is due."""
    if TimerKey(Alarm.STREAMS_INITIAL, group.group_id) in context.timers:
        text = "Assignment delayed due to the configured initial rebalance delay."
        return StreamsTarget(group.assignment_epoch, NO_TASKS, text)
    present = StreamsTarget(group.assignment_epoch, group.target_of(member.member_id))
    if group.assignment_epoch >= epoch:
        return present
    if not group.may_assign(streams_settings(context, group.group_id).assignment_interval_ms, context.now_ms):
        text = "Assignment delayed due to the configured assignment interval."
        return StreamsTarget(present.assignment_epoch, present.tasks, text)
    configs = assignment_configs(context, group.group_id)
    targets = _assign(context, group, group.members_with(member), epoch, configured, int(configs[STANDBYS]))
    return StreamsTarget(epoch, targets[member.member_id])


def end_initial_delay(context: CommandContext, group: StreamsGroup) -> None:
    """Compute the first target after the initial delay, if the topology was checked.

    In a group that was used before, the interval since its last assignment may not have passed yet.
    """
    if group.is_empty or group.configured is None or group.epoch <= group.assignment_epoch:
        return
    if not group.may_assign(streams_settings(context, group.group_id).assignment_interval_ms, context.now_ms):
        return
    standbys = int(group.assignment_configs.get(STANDBYS, "0"))
    _assign(context, group, group.members, group.epoch, group.configured, standbys)


def _assign(
    context: CommandContext,
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    epoch: int,
    configured: ConfiguredTopology,
    standbys: int,
) -> dict[str, TaskSet]:
    """Compute and write the target of all members."""
    if configured.is_ready:
        workers = [
            Worker(member_id, member.process_id, group.target_of(member_id)) for member_id, member in members.items()
        ]
        targets = assign_sticky(workers, configured.subtopologies.values(), standbys)
    else:
        targets = dict.fromkeys(members, NO_TASKS)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            context.append(streams_target_entry(group.group_id, member_id, target))
    context.append(streams_assignment_epoch_entry(group.group_id, epoch, context.now_ms))
    return targets
