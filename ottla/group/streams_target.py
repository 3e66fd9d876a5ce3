"""The target of a streams group: what each member shall have, computed when the group epoch has risen.

Rules:
- An application that starts waits `group.streams.initial.rebalance.delay.ms` for more members; then it is one target
  in `group.streams.assignment.interval.ms` at most. Meanwhile members live by the last one, and are told so.
- Nobody is given anything while the topology is not ready.
- Only members whose target changes are written.
"""

from collections.abc import Mapping

from ottla.group.shard import Turn
from ottla.group.streams_assignor import Worker, assign_sticky
from ottla.group.streams_configuration import ConfiguredTopology
from ottla.group.streams_group import NO_TASKS, StreamsGroup, StreamsMember
from ottla.group.streams_record import streams_assignment_epoch_entry, streams_target_entry
from ottla.group.streams_task import TaskSet
from ottla.group.timer import Alarm, TimerKey
from ottla.kernel.value import frozen

STANDBYS = "num.standby.replicas"


@frozen
class StreamsTarget:
    """What one member shall have."""

    assignment_epoch: int
    tasks: TaskSet
    #: Why there is no newer one yet.
    delay: str = ""


def streams_setting(turn: Turn, group_id: str, name: str) -> int:
    """A setting of the group, or the broker's if the group has none."""
    value: int | None = getattr(turn.shard.override(group_id), f"streams_{name}")
    broker: int = getattr(turn.settings, f"group_streams_{name}")
    return broker if value is None else value


def assignment_configs(turn: Turn, group_id: str) -> dict[str, str]:
    """What settings an assignment depends on."""
    return {STANDBYS: str(streams_setting(turn, group_id, "num_standby_replicas"))}


def update_streams_target(
    turn: Turn, group: StreamsGroup, member: StreamsMember, epoch: int, configured: ConfiguredTopology
) -> StreamsTarget:
    """What this member shall have, after a new target if one is due."""
    if TimerKey(Alarm.STREAMS_INITIAL, group.group_id) in turn.timers:
        text = "Assignment delayed due to the configured initial rebalance delay."
        return StreamsTarget(group.assignment_epoch, NO_TASKS, text)
    present = StreamsTarget(group.assignment_epoch, group.target_of(member.member_id))
    if group.assignment_epoch >= epoch:
        return present
    if not group.may_assign(streams_setting(turn, group.group_id, "assignment_interval_ms"), turn.now_ms):
        text = "Assignment delayed due to the configured assignment interval."
        return StreamsTarget(present.assignment_epoch, present.tasks, text)
    configs = assignment_configs(turn, group.group_id)
    targets = _assign(turn, group, group.members_with(member), epoch, configured, int(configs[STANDBYS]))
    return StreamsTarget(epoch, targets[member.member_id])


def end_initial_delay(turn: Turn, group: StreamsGroup) -> None:
    """The first members have gathered: give them their tasks, if it is known what there is to do."""
    if group.is_empty or group.configured is None or group.epoch <= group.assignment_epoch:
        return
    standbys = int(group.assignment_configs.get(STANDBYS, "0"))
    _assign(turn, group, group.members, group.epoch, group.configured, standbys)


def _assign(
    turn: Turn,
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    epoch: int,
    configured: ConfiguredTopology,
    standbys: int,
) -> dict[str, TaskSet]:
    """Compute a target for all and write it."""
    if configured.is_ready:
        workers = [
            Worker(member_id, member.process_id, group.target_of(member_id)) for member_id, member in members.items()
        ]
        targets = assign_sticky(workers, configured.subtopologies.values(), standbys)
    else:
        targets = dict.fromkeys(members, NO_TASKS)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            turn.append(streams_target_entry(group.group_id, member_id, target))
    turn.append(streams_assignment_epoch_entry(group.group_id, epoch, turn.now_ms))
    return targets
