"""A guard alone: an authorizer and a handler of the test's, and requests that name something everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from ottla.broker.call.handler import Handler
from ottla.broker.call.reply import Later
from ottla.broker.dispatch.dispatch import CONTROLLER_HANDLERS, HANDLERS
from ottla.broker.guard.authorizer import CODES
from ottla.broker.guard.guards import guarded
from ottla.kernel.error import KafkaError
from ottla.security.acl import AclResource
from ottla.wire.api import API, ApiKey
from ottla.wire.schema import fields

#: What enables the kinds of groups.
_FEATURES = ("group.version", "share.version", "streams.version")


class Asked:
    """An authorizer that allows all but `denied`, and notes what it is asked."""

    def __init__(self, *denied: str) -> None:
        self.denied = denied
        self.questions: list[str] = []
        #: The questions whose answers go to the authorizer's log.
        self.logged: set[str] = set()
        self.unlogged: set[str] = set()

    def allows(self, call: Any, operation: Any, kind: Any, name: str = "kafka-cluster", *, logged: bool = True) -> bool:
        question = f"{operation.name} {kind.name}{'' if kind is AclResource.CLUSTER else f' {name}'}"
        if question not in self.questions:
            self.questions.append(question)
        (self.logged if logged else self.unlogged).add(question)
        return question not in self.denied

    def check(self, call: Any, operation: Any, kind: Any, name: str = "kafka-cluster") -> None:
        if not self.allows(call, operation, kind, name):
            raise KafkaError(CODES[kind])

    def allows_any(self, call: Any, operation: Any, kind: Any) -> bool:
        return self.allows(call, operation, kind, "any")

    def operations(self, call: Any, kind: Any, name: str = "kafka-cluster") -> int:
        return 1000 + len(name)


def filled(cls: type[Any], version: int, suffix: str = "") -> Any:
    """A request with two elements in each list, and a name of its own in each string."""
    made = cls()
    for field in fields(cls):
        # A cursor would have to be one of the topics.
        if version not in field.versions or field.name == "cursor":
            continue
        if field.struct is not None:
            inner = [filled(field.struct, version, f"{suffix}{index}") for index in range(2)]
            setattr(made, field.name, inner if field.is_array else inner[0])
        elif field.type == "String":
            names = [f"{field.name}{suffix}{index}" for index in range(2)]
            setattr(made, field.name, names if field.is_array else f"{field.name}{suffix}")
        elif field.type in ("Int8", "Int16", "Int32", "Int64"):
            value = {"resource_type": 2 if suffix == "0" else 4, "replica_id": -1, "acks": 1}.get(field.name, 0)
            setattr(made, field.name, [0, 1] if field.is_array else value)
    return made


class Scene:
    def __init__(
        self, key: ApiKey, version: int | None = None, *denied: str, response: Any = None, later: bool = False
    ) -> None:
        self.api = API[key]
        self.version = max(self.api.stable_versions) if version is None else version
        self.authorizer = Asked(*denied)
        self.passed: list[Any] = []
        self.response = self.api.response() if response is None else response
        self.later: Later | None = Later() if later else None
        node = SimpleNamespace(
            image=SimpleNamespace(topics={"there": None}, features=dict.fromkeys(_FEATURES, 1)),
            topic_name=lambda topic_id: {b"1" * 16: "there", b"2" * 16: "hidden"}.get(bytes(topic_id)),
            settings=SimpleNamespace(
                auto_create_topics_enable=True,
                controller_listener_names=("CONTROLLER",),
                delete_topic_enable=True,
                group_coordinator_rebalance_protocols=("classic", "consumer", "streams"),
            ),
        )
        #: The next steps of a long request.
        self.steps: list[Callable[[], None]] = []
        turns = SimpleNamespace(wait=self.steps.append)
        connection = SimpleNamespace(
            listener_name="PLAINTEXT", closed=False, turns=turns, pause=lambda: None, resume=lambda: None
        )
        self.call: Any = SimpleNamespace(node=node, version=self.version, connection=connection, is_long=False)
        known = HANDLERS if key in HANDLERS else CONTROLLER_HANDLERS
        self.handler = guarded(self.authorizer, Handler(self.api, self._handle, known[key].error_response))  # type: ignore[arg-type]
        self.request = filled(self.api.request, self.version)

    def _handle(self, call: Any, request: Any) -> Any:
        assert call is self.call
        self.passed.append(request)
        return self.response if self.later is None else self.later

    def ask(self) -> Any:
        return self.handler.function(self.call, self.request)


def asked(key: ApiKey, *denied: str, version: int | None = None, **given: Any) -> tuple[Scene, Any]:
    """The scene and its outcome: a response, or the error that refused the whole request."""
    scene = Scene(key, version, *denied)
    for field, value in given.items():
        setattr(scene.request, field, value)
    try:
        return scene, scene.ask()
    except KafkaError as error:
        return scene, error.code


def texts(value: Any) -> set[str]:
    """All strings in a message."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, list | tuple):
        return {text for each in value for text in texts(each)}
    return {text for each in _fields(value) for text in texts(getattr(value, each.name))}


def _fields(value: Any) -> Any:
    """The fields of a message or a part of one; none of a plain value."""
    return () if value is None or isinstance(value, str | bytes | int | float) else fields(type(value))


def codes_of(value: Any, name: str) -> set[int]:
    """The error codes in the innermost elements of lists that speak of `name`."""
    if isinstance(value, list | tuple):
        return {code for each in value for code in codes_of(each, name)} if name in texts(value) else set()
    known = _fields(value)
    if any(getattr(value, each.name) == name for each in known if each.struct is None):
        return {code for code in all_codes(value) if code}
    return {code for each in known for code in codes_of(getattr(value, each.name), name)}


def all_codes(value: Any) -> Iterator[int]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from all_codes(each)
        return
    for each in _fields(value):
        if each.name.endswith("error_code"):
            yield int(getattr(value, each.name))
        elif each.struct is not None:
            yield from all_codes(getattr(value, each.name))
