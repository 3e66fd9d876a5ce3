"""What a share consumer tells its coordinator, without a socket."""

from ottla.client.membership.membership import Outcome
from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.share.group import ShareMembership
from ottla.kernel.error import ErrorCode
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatResponse


def _joined(**more: object) -> ShareMembership:
    """A member that the coordinator has taken in."""
    membership = ShareMembership(ConsumerSettings.read("localhost:9092", {"group_id": "g", **more}), "me")
    membership.heartbeat_request(["b", "a"], None, {})
    _answer(membership, ErrorCode.NONE)
    return membership


def _answer(membership: ShareMembership, code: ErrorCode) -> Outcome:
    answer = ShareGroupHeartbeatResponse(error_code=int(code), member_epoch=4, heartbeat_interval_ms=3_000)
    return membership.heartbeat_answered(answer)  # type: ignore[arg-type]


def test_the_first_heartbeat_tells_everything_and_the_next_ones_what_has_changed() -> None:
    settings = ConsumerSettings.read("localhost:9092", {"group_id": "g", "client_rack": "r"})
    membership = ShareMembership(settings, "me")
    first = membership.heartbeat_request(["b", "a"], None, {})
    assert (first.group_id, first.member_id, first.member_epoch) == ("g", "me", 0)
    assert (first.subscribed_topic_names, first.rack_id) == (["a", "b"], "r")
    assert _answer(membership, ErrorCode.NONE) is Outcome.GOOD
    quiet = membership.heartbeat_request(["a", "b"], None, {})
    assert (quiet.member_epoch, quiet.subscribed_topic_names, quiet.rack_id) == (4, None, None)
    changed = membership.heartbeat_request(["a"], None, {})
    assert (changed.subscribed_topic_names, changed.rack_id) == (["a"], None)


def test_a_heartbeat_whose_answer_is_lost_is_said_again() -> None:
    membership = _joined()
    membership.heartbeat_request(["a"], None, {})
    membership.unanswered()
    assert membership.heartbeat_request(["a"], None, {}).subscribed_topic_names == ["a"]


def test_a_member_that_was_fenced_joins_with_everything() -> None:
    membership = _joined(client_rack="r")
    assert _answer(membership, ErrorCode.FENCED_MEMBER_EPOCH) is Outcome.LOST
    again = membership.heartbeat_request(["a", "b"], None, {})
    assert (again.member_epoch, again.subscribed_topic_names, again.rack_id) == (0, ["a", "b"], "r")


def test_a_member_leaves_with_epoch_minus_1() -> None:
    leave = _joined().leave_request()
    assert (leave.group_id, leave.member_id, leave.member_epoch) == ("g", "me", -1)
