"""What an application last ran: its topology, tasks and stores, kept in `<application.id>-ottla-plan-changelog`.

A start compares its plan with it: a change that would lose state or read it wrong is refused. The topic is compacted,
has one partition and one key; its name ends as internal topics do, so that every reset tool deletes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.admin.client import Admin
from ottla.client.admin.result import NewTopic
from ottla.client.consumer.sync import Consumer
from ottla.client.producer.sync import Producer
from ottla.flow.describe import describe
from ottla.flow.store.spec import StoreSpec
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.spark.streams.layout import Program

SUFFIX = "-ottla-plan-changelog"
_KEY = b"plan"
ALIVE_KEY = b"alive"
#: A program that has told nothing for so long does not run.
ALIVE_S = 15
_ENDED = ("NOT_RUNNING", "ERROR")
_READ_S = 10
#: What the bytes of a store's entries depend on, and how it is called in a message.
_FORM = {
    "kind": "kind",
    "key": "key serde",
    "value": "value serde",
    "window_ms": "window size",
}


class Alive(NamedTuple):
    """What a program told of itself last, at `time_ms` of its machine. `http`: where it answers, if it does."""

    host: str
    pid: int
    time_ms: int
    state: str
    workers: int
    http: str | None = None

    @property
    def runs(self) -> bool:
        """True if it has not ended, and has told so lately."""
        return self.state not in _ENDED and time.time_ns() // 1_000_000 - self.time_ms < ALIVE_S * 1000


@dataclass(frozen=True, slots=True)
class LastRun:
    """`tasks`: id, sources (topic, partition), stores. `stores`: by name, their forms and the sub-topology."""

    application_id: str
    started_ms: int
    topology: str
    guarantee: str
    tasks: list[dict[str, Any]]
    stores: dict[str, dict[str, Any]]
    repartitions: list[str]

    @property
    def transactional_ids(self) -> list[str]:
        return [f"{self.application_id}-{task['id']}" for task in self.tasks]

    @property
    def input_topics(self) -> list[str]:
        """The topics that it reads and did not make."""
        read = {topic for task in self.tasks for topic, _ in task["sources"]}
        return sorted(read - set(self.repartitions))


def of_program(program: Program) -> LastRun:
    """What would be kept of a program that starts now."""
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
                "sources": [[place.topic, place.partition] for place in task.sources],
                "stores": list(task.stores),
            }
            for task in program.tasks
        ],
        {name: _form(topology.stores[name], settings.defaults) | {"stage": stages[name]} for name in stages},
        [topology.topic(name, program.application_id) for name in topology.internal_topics],
    )


def changes(old: LastRun, new: LastRun) -> tuple[list[str], list[str]]:
    """What was changed so that state would be read wrong, and what would be lost."""
    wrong, lost = [], []
    for name, was in old.stores.items():
        now = new.stores.get(name)
        if now is None:
            lost.append(f"store {name} is gone{_renamed(name, was, old, new)}")
            continue
        for field, word in _FORM.items():
            if was[field] != now[field]:
                wrong.append(f"store {name} had {word} {was[field]} and has {now[field]} now")
    lost += [f"repartition topic {name} is gone" for name in old.repartitions if name not in new.repartitions]
    return wrong, lost


def check(old: LastRun | None, new: LastRun, *, accept_changes: bool) -> None:
    """OttlaError that says what was changed, if the program cannot go on from what its application last ran."""
    if old is None:
        return
    wrong, lost = changes(old, new)
    if wrong:
        raise OttlaError(
            f"application {new.application_id} cannot go on with this plan: {'; '.join(wrong)}. Give what was changed "
            f"a new name, run it under another application_id, or `ottla streams reset {new.application_id}`"
        )
    if lost and not accept_changes:
        raise OttlaError(
            f"application {new.application_id} would lose state with this plan: {'; '.join(lost)}. Name stores so that "
            "they keep their names, or accept the loss with accept_changes=True (--accept-changes)"
        )


def read(
    admin: Admin, settings: Mapping[str, Any], application_id: str
) -> tuple[LastRun, Alive | None] | tuple[None, None]:
    """What the application last ran, and what it told last; None if it has not run here."""
    topic = application_id + SUFFIX
    if topic not in {each.name for each in admin.list_topics()}:
        return None, None
    place = TopicPartition(topic, 0)
    found: dict[Any, Any] = {}
    deadline = time.monotonic() + _READ_S
    with Consumer({**settings, "auto.offset.reset": "none"}) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        consumer.seek(place, consumer.beginning_offsets([place])[place])
        while consumer.position(place) < end:
            for record in consumer.poll(0.1):
                found[record.key] = record.value
            if time.monotonic() > deadline:
                raise OttlaError(f"topic {topic} cannot be read to its end within {_READ_S} s: try again")
    if _KEY not in found:
        return None, None
    try:
        alive = Alive(**json.loads(found[ALIVE_KEY])) if ALIVE_KEY in found else None
        return LastRun(**json.loads(found[_KEY])), alive
    except (TypeError, ValueError) as error:
        raise OttlaError(
            f"topic {topic} does not hold the plan of an application: delete it, or reset the application"
        ) from error


def write(admin: Admin, settings: Mapping[str, Any], run: LastRun) -> None:
    """Keep what starts now."""
    topic = run.application_id + SUFFIX
    created = admin.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "compact"})])
    for error in created.errors.values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
    fields = {name: getattr(run, name) for name in LastRun.__slots__}
    with Producer(settings) as producer:
        producer.send(topic, json.dumps(fields).encode(), _KEY)


def _form(spec: StoreSpec, defaults: tuple[Any, Any]) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "key": str(getattr(spec.key or defaults[0], "name", None)),
        "value": str(getattr(spec.value or defaults[1], "name", None)),
        "retention_ms": spec.retention_ms,
        "window_ms": spec.window_ms,
    }


def _renamed(name: str, was: dict[str, Any], old: LastRun, new: LastRun) -> str:
    """A hint where a store of the same form has come in its place."""
    for other, form in new.stores.items():
        if other not in old.stores and all(form[field] == was[field] for field in _FORM):
            return f" (is {other} the same one under a new name?)"
    return ""
