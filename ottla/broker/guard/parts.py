"""Guards of requests that name several resources: denied parts are refused, and the rest goes to the handler.

A guard is a function (authorizer, handler, call, request) -> reply. The handler's own `error_response` builds the
denials, from a request that names only the denied parts; they follow the handler's answers. The parts of a long request
are asked about in steps.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Later, NoReply, Reply, in_turns
from ottla.broker.coordinators.group_protocol import check_enabled
from ottla.broker.guard.authorizer import CODES, Authorizer
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.security.acl import CLUSTER_NAME, AclOperation, AclResource
from ottla.wire.compile import Deferred, deferred

#: About a millisecond.
PARTS_PER_STEP = 200

Guard = Callable[[Authorizer, Handler, Call, Any], Reply]


def unchecked(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Check nothing: everyone may, or the handler checks itself."""
    return handler.function(call, request)


def whole(operation: AclOperation, kind: AclResource, field: str | None = None) -> Guard:
    """Check one resource for the whole request: the cluster, or the one that a field names."""

    def guard(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        name = CLUSTER_NAME if field is None else getattr(request, field)
        authorizer.check(call, operation, kind, name or "")
        return handler.function(call, request)

    return guard


def cluster(operation: AclOperation) -> Guard:
    """Check the cluster for the whole request."""
    return whole(operation, AclResource.CLUSTER)


def both(first: Guard, second: Guard) -> Guard:
    """Apply the first guard, then the second."""

    def guard(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        inner = Handler(
            handler.api, lambda call, request: second(authorizer, handler, call, request), handler.error_response
        )
        return first(authorizer, inner, call, request)

    return guard


def of_kind(kind: str, guard: Guard) -> Guard:
    """Refuse a kind of groups that this node does not serve to every client, then apply the guard."""

    def checked(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        check_enabled(call.node, kind)
        return guard(authorizer, handler, call, request)

    return checked


def parts(
    operation: AclOperation,
    kind: AclResource,
    field: str,
    name: str | None,
    out: str,
    *,
    by_id: bool = False,
    unique: bool = False,
) -> Guard:
    """Check each element of the list `field`, by its attribute `name`; the answers are in the list `out`.

    `unique`: a name may occur once. Without `name` the elements are names, and each is answered once.
    """

    def guard(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        repeated: set[Any] = set()
        if name is None:
            request = with_field(request, field, list(dict.fromkeys(getattr(request, field))))
        elif unique:
            repeated = repetitions(getattr(each, name) for each in getattr(request, field))

        def may(each: Any) -> bool:
            asked = each if name is None else getattr(each, name)
            if asked in repeated:
                # The handler refuses what is named more than once.
                return True
            if by_id and not asked:
                # An unknown topic id; the handler returns that error.
                asked = call.node.topic_name(each.topic_id)
                if asked is None:
                    return True
            return authorizer.allows(call, operation, kind, asked)

        return split(handler, call, request, field, out, may, KafkaError(CODES[kind]))

    return guard


def split(
    handler: Handler, call: Call, request: Any, field: str, out: str, may: Callable[[Any], bool], error: KafkaError
) -> Reply:
    """Pass the permitted parts to the handler, and add denials for the rest."""

    def work() -> Generator[None, None, Reply]:
        kept, refused = yield from divided(call, getattr(request, field) or (), may)
        if not refused:
            return handler.function(call, request)
        denied = handler.error_response(with_field(request, field, refused), call.version, error)
        if not kept:
            return denied
        return joined(handler, call, with_field(request, field, kept), out, getattr(denied, out))

    return in_turns(call.connection, work())


def joined(handler: Handler, call: Call, kept: Any, out: str, refusals: list[Any]) -> Reply:
    """The handler's answer to `kept`, the permitted part of a request, with denials appended to its list `out`.

    A response that is a single error has no list and stays as it is.
    """

    def add(response: Any) -> Any:
        if not getattr(response, "error_code", ErrorCode.NONE):
            answers = getattr(response, out)
            # What the handler builds while it is encoded stays so, however little it is.
            build = Deferred if isinstance(answers, Deferred) else deferred
            setattr(response, out, build(len(answers) + len(refusals), lambda: chain(answers, refusals)))
        return response

    return amended(handler.function(call, kept), add)


def each_amended(answers: list[Any], amend: Callable[[Any], None]) -> list[Any]:
    """The answers, each changed by `amend`, also if they are created while they are encoded."""

    def changed() -> Iterator[Any]:
        for each in answers:
            amend(each)
            yield each

    return deferred(len(answers), changed)


def repetitions(asked: Iterable[Any]) -> set[Any]:
    """What is named more than once."""
    return {each for each, times in Counter(asked).items() if times > 1}


def divided(
    call: Call, asked: Iterable[Any], may: Callable[[Any], bool]
) -> Generator[None, None, tuple[list[Any], list[Any]]]:
    """(permitted, denied) elements, for `in_turns`: in steps if the request is long."""
    kept: list[Any] = []
    refused: list[Any] = []
    for number, element in enumerate(asked, 1):
        (kept if may(element) else refused).append(element)
        if call.is_long and not number % PARTS_PER_STEP:
            yield
    return kept, refused


def with_field(request: Any, field: str, value: Any) -> Any:
    """A copy of the request with another value in one field."""
    made = copy.copy(request)
    setattr(made, field, value)
    return made


def amended(reply: Reply, amend: Callable[[Any], Any]) -> Reply:
    """The reply with its response changed, now or when it arrives; whole-request errors stay as they are."""
    if isinstance(reply, Later):
        if not reply.resolved:
            later = Later(reply.superseded)
            reply.then(lambda value: later.resolve(amended(value, amend)))
            return later
        reply = reply.value
    return reply if isinstance(reply, KafkaError | NoReply) else amend(reply)
