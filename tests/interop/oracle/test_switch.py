"""Kinds of groups switched off by a feature's level: what Apache Kafka refuses and in which words.

`tests/broker/test_switch.py` holds the table of what is refused.
"""

import pytest

from tests.broker.switch import REQUESTS
from tests.broker.wire_client import GROUP, SHARE, make_coordinators
from tests.interop.oracle.side import Oracle, Side, key_of

_SAFE_DOWNGRADE, _UPGRADE = 2, 1


def update(side: Side, feature: str, level: int, upgrade_type: int, *, validate_only: bool = False) -> None:
    wanted = {"feature": feature, "max_version_level": level, "upgrade_type": upgrade_type}
    reply = side.ask("UpdateFeatures", 2, feature_updates=[wanted], validate_only=validate_only)
    # The words of these are compared, too: tools show them.
    side.note("words", reply.error_message)


def ask_all(side: Side) -> None:
    """Every request of the table, to coordinators that are there."""
    for request, version, _ in REQUESTS.values():
        reply = side.connect().ask(request, version)
        codes = [each.error_code for each in (reply, *getattr(reply, "groups", ())) if hasattr(each, "error_code")]
        words = [
            each.error_message for each in (reply, *getattr(reply, "groups", ())) if hasattr(each, "error_message")
        ]
        side.note(f"{key_of(request)} codes", codes)
        if 35 in codes:
            side.note(f"{key_of(request)} words", words)


def begin(side: Side) -> None:
    make_coordinators(side.connect(), GROUP, SHARE)
    side.settle()


@pytest.mark.parametrize("feature", ["group.version", "share.version", "streams.version"])
def test_a_kind_of_group_that_is_switched_off_is_refused(oracle: Oracle, feature: str) -> None:
    def script(side: Side) -> None:
        begin(side)
        update(side, feature, 0, _SAFE_DOWNGRADE)
        try:
            side.settle()
            ask_all(side)
        finally:
            update(side, feature, 1, _UPGRADE)
        side.settle()
        ask_all(side)

    oracle.compare(script)


@pytest.mark.parametrize("feature", ["kraft.version", "transaction.version", "eligible.leader.replicas.version"])
def test_a_level_that_is_there_or_cannot_be(oracle: Oracle, feature: str) -> None:
    def script(side: Side) -> None:
        for level in (-1, 0, 1, 2, 3):
            for upgrade_type in (0, 1, 2, 3):
                update(side, feature, level, upgrade_type, validate_only=True)

    oracle.compare(script)
