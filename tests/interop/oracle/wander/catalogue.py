"""The families by name, and the servers that histories are run on."""

from collections.abc import Callable

from tests.interop.oracle.wander.admin import admin
from tests.interop.oracle.wander.byte import byte
from tests.interop.oracle.wander.classic import classic
from tests.interop.oracle.wander.consumer import consumer, mixed
from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Step
from tests.interop.oracle.wander.raw import raw
from tests.interop.oracle.wander.record import record
from tests.interop.oracle.wander.share import share
from tests.interop.oracle.wander.transaction import transaction
from tests.interop.server import HELD

FAMILIES: dict[str, Callable[[Draw], None]] = {
    "record": record,
    "transaction": transaction,
    "classic": classic,
    "consumer": consumer,
    "mixed": mixed,
    "share": share,
    "admin": admin,
    "raw": raw,
    "byte": byte,
}

#: Nothing expires while a history runs, and what a server may do at leisure it does at once.
SETTINGS = {
    # Being fenced would raise the epochs of all that the broker leads.
    **HELD,
    "controller.quorum.append.linger.ms": "0",
    "group.coordinator.append.linger.ms": "0",
    "share.coordinator.append.linger.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.record.lock.duration.ms": "600000",
    "group.share.max.record.lock.duration.ms": "3600000",
}
LENGTH = 40


def history(family: str, seed: int, length: int = LENGTH) -> list[Step]:
    """The history of a seed: the same wherever it is asked for."""
    draw = Draw(f"{family} {seed}", length)
    FAMILIES[family](draw)
    return draw.steps
