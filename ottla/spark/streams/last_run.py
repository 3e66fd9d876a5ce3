"""The last run of an application: its topology, tasks and stores, kept in `<application.id>-ottla-plan-changelog`.

Each start compares its plan with the last one and refuses a change that would lose state or misread it. The topic is
compacted and has one partition; its name ends like an internal topic's, so that every reset tool deletes it.

Each start has a unique name, its *run*, which is part of the plan. Workers read the topic beside their sources and end
when it names another run than theirs, or none, as after a reset (decision 0627).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.client.admin.client import Admin
from ottla.client.admin.result import NewTopic
from ottla.client.consumer.sync import Consumer
from ottla.client.producer.sync import Producer
from ottla.flow.describe import describe
from ottla.flow.error import StreamsError
from ottla.flow.store.spec import StoreSpec
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.spark.streams.layout import Program, known

SUFFIX = "-ottla-plan-changelog"
_KEY = b"plan"
ALIVE_KEY = b"alive"
#: A program without a heartbeat for this long counts as stopped.
ALIVE_S = 15
_ENDED = ("NOT_RUNNING", "ERROR")
_READ_S = 10
#: Heartbeats are many, so segments are rolled, and then compacted, every hour.
_CONFIGS: dict[str, str | int] = {"cleanup.policy": "compact", "segment.ms": 3_600_000}
#: The properties that the bytes of a store's entries depend on, and their names in messages.
_FORMAT_FIELDS = {
    "kind": "kind",
    "key": "key serde",
    "value": "value serde",
    "window_ms": "window size",
}


class Alive(NamedTuple):
    """The last heartbeat of a program, at `time_ms` of its machine. `http`: the address of its HTTP server, or None."""

    host: str
    pid: int
    time_ms: int
    state: str
    workers: int
    http: str | None = None

    @property
    def runs(self) -> bool:
        """Whether the program is running: it has not ended, and its heartbeat is recent."""
        return self.state not in _ENDED and time.time_ns() // 1_000_000 - self.time_ms < ALIVE_S * 1000


@dataclass(frozen=True, slots=True)
class LastRun:
    """The plan of a run. `tasks`: id, sources (topic, partition) and stores of each. `stores`: by name, the format and
    the sub-topology.
    """

    application_id: str
    started_ms: int
    topology: str
    guarantee: str
    tasks: list[dict[str, Any]]
    stores: dict[str, dict[str, Any]]
    repartitions: list[str]
    #: The name of the run; empty once a reset has begun, when nothing may run. None: written by an older version.
    run: str | None = None
    #: The ids of the internal topics as text; without those of brokers that have none.
    topics: dict[str, str] = field(default_factory=dict)

    @property
    def transactional_ids(self) -> list[str]:
        return [f"{self.application_id}-{task['id']}" for task in self.tasks]

    @property
    def input_topics(self) -> list[str]:
        """The source topics, without repartition topics."""
        read = {topic for task in self.tasks for topic, _ in task["sources"]}
        return sorted(read - set(self.repartitions))


class Replaced(OttlaError):
    """The application was started again or reset, so this run must end."""


def new_run() -> str:
    """A unique name for a start."""
    return secrets.token_hex(8)


def of_program(program: Program) -> LastRun:
    """The plan of a program that starts now."""
    topology, settings = program.topology, program.settings
    stages = {name: task.subtopology for task in program.tasks for name in task.stores}
    return LastRun(
        program.application_id,
        time.time_ns() // 1_000_000,
        describe(topology),
        program.guarantee,
        [
            {
                "id": task.id,
                "sources": [[partition.topic, partition.partition] for partition in task.sources],
                "stores": list(task.stores),
            }
            for task in program.tasks
        ],
        {name: _store_format(topology.stores[name], settings.defaults) | {"stage": stages[name]} for name in stages},
        [topology.topic(name, program.application_id) for name in topology.internal_topics],
        program.run,
    )


def changes(old: LastRun, new: LastRun) -> tuple[list[str], list[str]]:
    """(changes that would misread state, changes that would lose state), as texts."""
    wrong, lost = [], []
    for name, was in old.stores.items():
        now = new.stores.get(name)
        if now is None:
            lost.append(f"store {name} is gone{_renamed(name, was, old, new)}")
            continue
        for key, word in _FORMAT_FIELDS.items():
            if was[key] != now[key]:
                wrong.append(f"the {word} of store {name} changed from {was[key]} to {now[key]}")
    lost += [f"repartition topic {name} is gone" for name in old.repartitions if name not in new.repartitions]
    return wrong, lost


def check(old: LastRun | None, new: LastRun, *, accept_changes: bool) -> None:
    """OttlaError if the program cannot continue from the application's last run. It names the changes."""
    if old is None:
        return
    if old.run == "":
        raise OttlaError(
            f"a reset of application {new.application_id} has not finished: run `ottla streams reset "
            f"{new.application_id}` again"
        )
    wrong, lost = changes(old, new)
    if wrong:
        raise OttlaError(
            f"application {new.application_id} cannot continue with this plan: {'; '.join(wrong)}; give the changed "
            f"store a new name, use another application_id, or run `ottla streams reset {new.application_id}`"
        )
    if lost and not accept_changes:
        raise OttlaError(
            f"application {new.application_id} would lose state with this plan: {'; '.join(lost)}; name stores "
            "explicitly so that they keep their names, or accept the loss with accept_changes=True (--accept-changes)"
        )


def check_topics(old: LastRun, new: LastRun, existing: Container[str], ids: Mapping[str, str]) -> None:
    """OttlaError if an internal topic of the last run that the program still needs has been deleted since, even if
    there is another topic with its name. `ids`: those of the existing topics.
    """
    application = new.application_id
    topics = {
        f"{application}-{name}-changelog": f"the state of store {name}" for name in old.stores if name in new.stores
    }
    topics |= {name: "its unprocessed records" for name in old.repartitions if name in new.repartitions}
    for topic, lost in topics.items():
        again = topic in old.topics and old.topics[topic] != ids.get(topic, old.topics[topic])
        deleted = "deleted and created again" if again else "deleted"
        if topic not in existing or again:
            raise OttlaError(
                f"internal topic {topic} of application {application} was {deleted}, and with it {lost}: run `ottla "
                f"streams reset {application}` to process the input again, or accept the loss with accept_changes=True "
                "(--accept-changes)"
            )


def to_fence(old: LastRun, new: LastRun) -> list[str]:
    """The transactional ids with which a worker of the last run could still commit to what the new run has read.

    A task that is unchanged fences its own id before it reads its offsets and state (exactly_once_v2).
    """
    if old.guarantee != "exactly_once_v2":
        return []
    unchanged = new.tasks if new.guarantee == old.guarantee else []
    return [f"{old.application_id}-{task['id']}" for task in old.tasks if task not in unchanged]


def read(
    admin: Admin, settings: Mapping[str, Any], application_id: str
) -> tuple[LastRun, Alive | None] | tuple[None, None]:
    """The plan and the heartbeat of the application's last run; (None, None) if it has not run on this cluster."""
    topic = application_id + SUFFIX
    if topic not in {topic_listing.name for topic_listing in admin.list_topics()}:
        return None, None
    values = _newest(settings, topic)
    if _KEY not in values:
        return None, None
    try:
        alive = Alive(**json.loads(values[ALIVE_KEY])) if ALIVE_KEY in values else None
        return LastRun(**json.loads(values[_KEY])), alive
    except (TypeError, ValueError) as error:
        raise OttlaError(
            f"topic {topic} does not contain the plan of an application; delete it, or reset the application"
        ) from error


def _newest(settings: Mapping[str, Any], topic: str) -> dict[Any, Any]:
    """The latest value of each key of a topic."""
    partition = TopicPartition(topic, 0)
    values: dict[Any, Any] = {}
    deadline = time.monotonic() + _READ_S
    with Consumer({**settings, "auto.offset.reset": "none"}) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek(partition, consumer.beginning_offsets([partition])[partition])
        while consumer.position(partition) < end:
            for record in consumer.poll(0.1):
                values[record.key] = record.value
            if time.monotonic() > deadline:
                raise OttlaError(f"topic {topic} could not be read to its end within {_READ_S} s; try again")
    return values


def write(admin: Admin, settings: Mapping[str, Any], run: LastRun, replicas: int = -1) -> None:
    """Write the plan of a run, and create its topic if needed."""
    topic = run.application_id + SUFFIX
    created = admin.create_topics([NewTopic(topic, 1, replicas, _CONFIGS)])
    for error in created.errors.values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
    fields = {name: getattr(run, name) for name in LastRun.__slots__}
    with Producer(settings) as producer:
        producer.send(topic, json.dumps(fields).encode(), _KEY).result()


def plan_partition(program: Program) -> TopicPartition:
    """The partition that holds the application's plan."""
    return TopicPartition(program.application_id + SUFFIX, 0)


def check_run(admin: Admin, program: Program) -> None:
    """Raise Replaced if the application has been started again or reset since this run began, and StreamsError if an
    internal topic has been replaced by another one of its name.
    """
    application = program.application_id
    plan, _ = read(admin, program.connection(), application)
    _check(program, None if plan is None else plan.run)
    assert plan is not None
    ids = known({listing.name: listing.id for listing in admin.list_topics()})
    for topic, topic_id in plan.topics.items():
        if ids.get(topic, topic_id) != topic_id:
            raise StreamsError(
                f"internal topic {topic} was deleted and created again while application {application} ran, and its "
                f"records are lost: run `ottla streams reset {application}` to process the input again, or accept the "
                "loss with accept_changes=True (--accept-changes)"
            )


def check_record(program: Program, key: bytes | None, value: bytes | None) -> None:
    """Raise Replaced if a new record of the plan's topic names another run."""
    if key == _KEY:
        _check(program, json.loads(value).get("run") if value else None)


def _check(program: Program, run: str | None) -> None:
    if run == program.run:
        return
    application = program.application_id
    if run:
        raise Replaced(f"another instance of application {application} has taken over: it was started after this one")
    raise Replaced(f"application {application} was reset while it ran: start it again, with empty state")


def end(admin: Admin, settings: Mapping[str, Any], run: LastRun, patience_s: float = ALIVE_S) -> bool:
    """End the application's run: its workers stop. False if it still sends heartbeats after `patience_s` seconds.

    Even then no worker reopens a task. The caller fences the transactions of workers that are cut off.
    """
    write(admin, settings, replace(run, run=""))
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        _, alive = read(admin, settings, run.application_id)
        if alive is None or not alive.runs:
            return True
        time.sleep(0.2)
    return False


def _store_format(spec: StoreSpec, defaults: tuple[Any, Any]) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "key": str(getattr(spec.key or defaults[0], "name", None)),
        "value": str(getattr(spec.value or defaults[1], "name", None)),
        "retention_ms": spec.retention_ms,
        "window_ms": spec.window_ms,
    }


def _renamed(name: str, was: dict[str, Any], old: LastRun, new: LastRun) -> str:
    """A hint if a new store has the same format as the missing one."""
    for other, form in new.stores.items():
        if other not in old.stores and all(form[field] == was[field] for field in _FORMAT_FIELDS):
            return f" (was it renamed to {other}?)"
    return ""
