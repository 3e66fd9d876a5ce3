"""The topics that a member's regular expression selects (KIP-848)."""

from __future__ import annotations

from collections.abc import Generator

from ottla.group.topic import TopicView
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.re2.pattern import Expression, InvalidExpression

#: Matching takes a few microseconds a topic.
_NAMES_A_STEP = 200


@frozen
class Selected:
    """The topics of one metadata version that an expression selects, or why it is refused."""

    regex: str
    version: int
    names: tuple[str, ...] = ()
    error: KafkaError | None = None


def select(regex: str, topics: TopicView) -> Generator[None, None, Selected]:
    """Compile and match the expression in steps of about a millisecond: a client chose it."""
    version, names = topics.version, []
    try:
        expression = yield from Expression.in_steps(regex)
        for number, name in enumerate(topics.names(), 1):
            if (yield from expression.matches_in_steps(name)):
                names.append(name)
            if not number % _NAMES_A_STEP:
                yield
    except InvalidExpression as invalid:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {invalid}."
        error = KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
        return Selected(regex, version, error=error)
    return Selected(regex, version, tuple(sorted(names)))
