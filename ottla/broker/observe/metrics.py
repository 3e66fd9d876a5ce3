"""A node's metrics, under the names that Apache Kafka's have behind Prometheus' JMX exporter with its usual rules.

`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders` becomes
`kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}`. Process metrics have Prometheus' own names; metrics
that Apache Kafka does not have begin with `ottla_`.

Rules:
- Everything but the request counters is read on demand from state that the node has anyway.
- `lines` is a generator: the loop serves others between two pieces, however many partitions there are.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from math import isnan
from typing import TYPE_CHECKING, cast

from ottla.broker.observe.client_metrics import PushedClientMetrics
from ottla.broker.observe.cluster_changes import ClusterChanges
from ottla.broker.observe.raft_latency import RaftLatency
from ottla.broker.observe.requests import Requests
from ottla.kernel.exposition import family, labels
from ottla.kernel.ids import TopicPartition
from ottla.kernel.validators import LONG_MAX
from ottla.raft.role import Candidate, Follower, Leader, Prospective

if TYPE_CHECKING:
    from ottla.broker.metadata_node import MetadataNode
    from ottla.broker.node import BrokerNode

_STEP = 200
#: Gauges of each log.
_LOGS = {
    "kafka_log_log_size": "Bytes of a log.",
    "kafka_log_log_logstartoffset": "The first offset of a log.",
    "kafka_log_log_logendoffset": "The offset of a log's next record.",
    "kafka_log_log_numlogsegments": "Segments of a log.",
}
#: Counts of each listener with TLS or SASL: name, text, field of `Authentications`.
_AUTHENTICATIONS = (
    (
        "kafka_server_socket_server_metrics_successful_authentication_total",
        "Clients that have signed in.",
        "successful",
    ),
    ("kafka_server_socket_server_metrics_failed_authentication_total", "Clients that were refused.", "failed"),
    (
        "kafka_server_socket_server_metrics_successful_reauthentication_total",
        "Sessions that were renewed.",
        "successful_renewals",
    ),
    (
        "kafka_server_socket_server_metrics_failed_reauthentication_total",
        "Sessions that ended because their renewal was refused.",
        "failed_renewals",
    ),
    (
        "kafka_server_socket_server_metrics_expired_connections_killed_count",
        "Connections closed after the end of their session.",
        "expired",
    ),
)
Sample = tuple[str, float]


def lines(
    node: MetadataNode,
    requests: Requests,
    changes: ClusterChanges,
    latency: RaftLatency,
    clients: PushedClientMetrics | None = None,
) -> Generator[list[str], None, None]:
    """All metric families, in pieces."""
    yield [*_process(), *_requests(node, requests), *_connections(node), *_quorum(node), *_latency(node, latency)]
    requests.keep(node.image.topics)
    yield _topics(requests)
    yield from _cluster(node)
    if node.settings.is_controller:
        yield _changes(changes)
    if node.settings.is_broker and node.is_ready:
        yield from _replicas(cast("BrokerNode", node))
    if clients is not None:
        yield from clients.lines()


def _process() -> list[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    scale = 1 if sys.platform == "darwin" else 1024
    memory = used.ru_maxrss * scale
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [
        *family("process_cpu_seconds_total", "counter", "CPU of all threads.", [("", used.ru_utime + used.ru_stime)]),
        *family("process_resident_memory_bytes", "gauge", "Resident memory.", [("", memory)]),
        *family("process_start_time_seconds", "gauge", "When the process began, since 1970.", [("", _STARTED_AT)]),
    ]


def _since() -> float:
    """When this process started; if the system does not tell, when this module was imported."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return time.time()


_STARTED_AT = _since()


def _requests(node: MetadataNode, requests: Requests) -> list[str]:
    counts = [(labels(request=name, version=version), count) for (name, version), count in requests.counts.items()]
    errors = [(labels(request=name, error=error), count) for (name, error), count in requests.errors.items()]
    now_ms = node.clock.monotonic_ms()
    times: list[Sample] = []
    for name, each in requests.durations.items():
        times += [(labels(request=name, quantile=quantile), value) for quantile, value in each.quantiles(now_ms)]
        times += [("_sum" + labels(request=name), each.sum_ms), ("_count" + labels(request=name), each.count)]
    return [
        *family("kafka_network_requestmetrics_requests_total", "counter", "Requests.", counts),
        *family("kafka_network_requestmetrics_errors_total", "counter", "Errors in answers, by code.", errors),
        *family("kafka_network_requestmetrics_totaltimems", "summary", "Milliseconds from request to answer.", times),
    ]


def _topics(requests: Requests) -> list[str]:
    family_lines = []
    for name, text, counter in (
        ("kafka_server_brokertopicmetrics_messagesin_total", "Records that producers wrote.", requests.messages_in),
        ("kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches that producers wrote.", requests.bytes_in),
        ("kafka_server_brokertopicmetrics_bytesout_total", "Bytes of batches that consumers read.", requests.bytes_out),
    ):
        samples: list[Sample] = [("", counter.total())]
        samples += [(labels(topic=topic), count) for topic, count in counter.items()]
        family_lines += family(name, "counter", text, samples)
    name, text = "kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes that followers read."
    return [*family_lines, *family(name, "counter", text, [("", requests.replication_bytes_out)])]


def _connections(node: MetadataNode) -> list[str]:
    samples = [
        (labels(listener=each.name), len(each.connections)) for each in (*node.listeners, *node.controller_listeners)
    ]
    family_lines = family("kafka_server_socket_server_metrics_connection_count", "gauge", "Open connections.", samples)
    for name, text, field in _AUTHENTICATIONS:
        counts = [(labels(listener=each), getattr(known, field)) for each, known in node.authentications.items()]
        family_lines += family(name, "counter" if name.endswith("_total") else "gauge", text, counts)
    return family_lines


def _quorum(node: MetadataNode) -> list[str]:
    machine, log, role = node.quorum.raft.quorum, node.quorum.log, node.quorum.raft.quorum.role
    voted = node.node_id if isinstance(role, Leader | Candidate) else -1 if role.voted is None else role.voted.node_id
    state = labels(current_state=_state_name(node))
    family_lines = family(
        "kafka_server_raftmetrics_current_state", "gauge", "What this node is in the quorum.", [(state, 1)]
    )
    values = [
        ("current_leader", "-1: none is known.", machine.leader_id),
        ("current_epoch", "Epoch of the quorum.", machine.epoch),
        ("current_vote", "The node that has this node's vote in this epoch; -1: none.", voted),
        ("high_watermark", "Committed end of the metadata log; -1: not known yet.", machine.high_watermark),
        ("log_end_offset", "End of the metadata log.", log.end_offset),
        ("log_end_epoch", "Epoch of the metadata log's last record.", max(0, log.epochs.latest)),
        ("number_of_voters", "Voters of the quorum.", len(node.quorum.voters)),
    ]
    if isinstance(role, Leader):
        _, observers = machine.describe(node.clock.monotonic_ms())
        values += [
            ("number_of_observers", "Nodes that follow and do not vote.", len(observers)),
            ("uncommitted_voter_change", "1 while a change of the voters is under way.", int(role.change is not None)),
        ]
    for name, text, value in values:
        family_lines += family(f"kafka_server_raftmetrics_{name}", "gauge", text, [("", value)])
    name, text = "kafka_server_brokermetadatametrics_last_applied_record_offset", "Metadata that this node follows."
    return [*family_lines, *family(name, "gauge", text, [("", node.image.offset)])]


def _latency(node: MetadataNode, latency: RaftLatency) -> list[str]:
    """Commit and election latency; nothing before the first one."""
    now_ms = node.clock.monotonic_ms()
    (commit, longest_commit), (election, longest_election) = (
        each.measured(now_ms) for each in (latency.commits, latency.elections)
    )
    family_lines: list[str] = []
    for name, text, value in (
        ("kafka_server_raftmetrics_commit_latency_avg", "Milliseconds to commit a record, on average.", commit),
        ("kafka_server_raftmetrics_commit_latency_max", "Milliseconds to commit a record, at most.", longest_commit),
        ("kafka_server_raftmetrics_election_latency_avg", "Milliseconds to elect a leader, on average.", election),
        ("kafka_server_raftmetrics_election_latency_max", "Milliseconds to elect a leader, at most.", longest_election),
    ):
        family_lines += family(name, "gauge", text, [] if isnan(value) else [("", value)])
    return family_lines


def _state_name(node: MetadataNode) -> str:
    """The quorum state under Apache Kafka's names."""
    role = node.quorum.raft.quorum.role
    if isinstance(role, Leader):
        return "leader"
    if isinstance(role, Candidate):
        return "candidate"
    voted = "" if role.voted is None else "-voted"
    if isinstance(role, Prospective):
        return "prospective" + voted
    if isinstance(role, Follower):
        return "follower" if any(voter.voter.node_id == node.node_id for voter in node.quorum.voters) else "observer"
    return "unattached" + voted


def _changes(changes: ClusterChanges) -> list[str]:
    """Counts of this controller since its start."""
    family_lines = []
    for name, text, count in (
        ("ottla_controller_leader_elections_total", "Leaders of partitions that were elected.", changes.elections),
        (
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Elections of replicas that were not in sync: acknowledged records may be lost.",
            changes.unclean_elections,
        ),
        (
            "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
            "Elections of eligible leader replicas.",
            changes.elections_from_elr,
        ),
        (
            "kafka_controller_kafkacontroller_newactivecontrollerscount",
            "Active controllers that this node has seen elected.",
            changes.active_controllers,
        ),
    ):
        family_lines += family(name, "counter" if name.endswith("_total") else "gauge", text, [("", count)])
    return family_lines


def _cluster(node: MetadataNode) -> Generator[list[str], None, None]:
    """The active controller's view of the whole cluster; other nodes export none of it, as in Apache Kafka."""
    leader = node.quorum.leader
    is_active = node.settings.is_controller and leader is not None and leader.node_id == node.node_id
    image = node.image
    yield family(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
        "1 on the active controller.",
        [("", int(is_active))],
    )
    if not is_active:
        return
    partitions = offline = imbalanced = 0
    for topic in image.topics.values():
        for partition in topic.partitions:
            partitions += 1
            offline += partition.leader < 0
            imbalanced += partition.leader != partition.replicas[0]
            if not partitions % _STEP:
                yield []
    fenced = sum(broker.fenced for broker in image.brokers.values())
    for name, text, value in (
        ("kafka_controller_kafkacontroller_globaltopiccount", "Topics.", len(image.topics)),
        ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions.", partitions),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.", offline),
        (
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "Partitions that their preferred replica does not lead.",
            imbalanced,
        ),
        ("kafka_controller_kafkacontroller_activebrokercount", "Brokers that serve.", len(image.brokers) - fenced),
        ("kafka_controller_kafkacontroller_fencedbrokercount", "Registered brokers that do not serve.", fenced),
    ):
        yield family(name, "gauge", text, [("", value)])


def _replication(node: BrokerNode) -> list[str]:
    """ISR changes and throttles (KIP-73, KIP-113)."""
    (expands, shrinks, failures), now_ms = node.replication.isr_counts, node.clock.monotonic_ms()
    family_lines: list[str] = []
    for name, text, count in (
        ("isrexpands", "Times that the in-sync replicas of a partition grew.", expands),
        ("isrshrinks", "Times that the in-sync replicas of a partition shrank.", shrinks),
        ("failedisrupdates", "Changes of in-sync replicas that the controller refused.", failures),
    ):
        family_lines += family(f"kafka_server_replicamanager_{name}_total", "counter", text, [("", count)])
    throttles = node.throttles
    bounds: list[Sample] = []
    for name, text, throttle in (
        ("leaderreplication", "Bytes a second of throttled replicas that followers read.", throttles.leader),
        ("followerreplication", "Bytes a second of throttled replicas that this broker copies.", throttles.follower),
        ("alterlogdirsreplication", "Bytes a second moved between directories.", throttles.directories),
    ):
        family_lines += family(f"kafka_server_{name}_byte_rate", "gauge", text, [("", throttle.per_second(now_ms))])
        if throttle.bound < LONG_MAX:
            bounds.append((labels(throttle=name), throttle.bound))
    text = "The rate that is set for throttled replicas, where one is set."
    return [*family_lines, *family("ottla_replication_throttle_bytes_per_second", "gauge", text, bounds)]


def _replicas(node: BrokerNode) -> Generator[list[str], None, None]:
    """The replicas of this broker and their logs."""
    yield _replication(node)
    counted: Counter[str] = Counter()
    logs: dict[str, list[Sample]] = {name: [] for name in _LOGS}
    yield from _offline(node)
    for number, (each, replica) in enumerate(list(node.hosted.items()), 1):
        tp = TopicPartition(*each)
        counted["kafka_server_replicamanager_partitioncount"] += 1
        counted.update(_state(node, tp))
        log, where = replica.log, labels(topic=tp.topic, partition=tp.partition)
        if not log.closed:
            values = log.size, log.start_offset, log.end_offset, len(log.segments)
            for samples, value in zip(logs.values(), values, strict=True):
                samples.append((where, value))
        if not number % _STEP:
            yield []
    for name, text in (
        ("kafka_server_replicamanager_partitioncount", "Replicas on this broker."),
        ("kafka_server_replicamanager_leadercount", "Partitions that it leads."),
        (
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions that it leads with fewer replicas in sync than replicas.",
        ),
        (
            "kafka_server_replicamanager_underminisrpartitioncount",
            "Partitions that it leads with fewer in sync than min.insync.replicas.",
        ),
        (
            "kafka_server_replicamanager_atminisrpartitioncount",
            "Partitions that it leads with just min.insync.replicas in sync.",
        ),
        ("kafka_server_replicamanager_reassigningpartitions", "Partitions that it leads whose replicas move."),
    ):
        yield family(name, "gauge", text, [("", counted[name])])
    failed = len(node.failed_directories)
    yield family("kafka_log_logmanager_offlinelogdirectorycount", "gauge", "Failed log directories.", [("", failed)])
    for name, text in _LOGS.items():
        yield from _in_pieces(family(name, "gauge", text, logs[name]))


def _offline(node: BrokerNode) -> Generator[list[str], None, None]:
    """Replicas of this broker in failed directories."""
    offline = looked = 0
    for topic in node.image.topics.values():
        for index, known in enumerate(topic.partitions):
            offline += (topic.name, index) not in node.hosted and node.leadership.is_offline(topic.name, index, known)
            looked += 1
            if not looked % _STEP:
                yield []
    name, text = "kafka_server_replicamanager_offlinereplicacount", "Replicas here whose log directory has failed."
    yield family(name, "gauge", text, [("", offline)])


def _state(node: BrokerNode, tp: TopicPartition) -> Iterator[str]:
    """The names of the metrics in which a replica counts."""
    partition, topic = node.partitions.get(tp), node.image.topics.get(tp.topic)
    if partition is None or topic is None or tp.partition >= len(topic.partitions):
        return
    yield "kafka_server_replicamanager_leadercount"
    known = topic.partitions[tp.partition]
    # A replica that a reassignment adds is not missed yet.
    if len(known.isr) < len(known.replicas) - len(known.adding_replicas):
        yield "kafka_server_replicamanager_underreplicatedpartitions"
    if known.is_reassigning:
        yield "kafka_server_replicamanager_reassigningpartitions"
    if partition.machine is not None:
        in_sync_min = min(partition.machine.settings.min_isr, len(known.replicas))
        if len(known.isr) < in_sync_min:
            yield "kafka_server_replicamanager_underminisrpartitioncount"
        elif len(known.isr) == in_sync_min:
            yield "kafka_server_replicamanager_atminisrpartitioncount"


def _in_pieces(family_lines: list[str]) -> Iterator[list[str]]:
    return (family_lines[first : first + _STEP] for first in range(0, len(family_lines), _STEP))
