"""`ottla groups`."""

import json

import pytest

from ottla.client import Admin, Consumer, GroupType, TopicPartition
from ottla.client.admin.result import GroupListing
from tests.cli.tool import Tool, in_process, on_terminal

CLASSIC, UNKNOWN = GroupType.CLASSIC, GroupType.UNKNOWN


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """A group without members that is at 2 of 10 records in partition 0."""
    in_process("produce", topic, "-p", "0", stdin=b"x\n" * 10, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(f"{topic}_group", {TopicPartition(topic, 0): 2}).check()
    return f"{topic}_group"


def test_a_group_is_listed_with_its_lag(tool: Tool, group: str) -> None:
    assert [group, "classic", "Empty", "0", "8"] in tool("groups").rows
    listed = {each["group"]: each for each in tool("groups", "--json").json}
    assert listed[group]["lag"] == 8


def test_a_group_of_a_newer_type_is_listed_and_a_deleted_one_is_not(
    tool: Tool, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Admin.list_groups

    def list_groups(admin: Admin) -> list[GroupListing]:
        listed = [GroupListing(name, kind, "Pondering", "") for name, kind in (("gone", CLASSIC), ("newer", UNKNOWN))]
        return there(admin) + listed

    monkeypatch.setattr(Admin, "list_groups", list_groups)
    rows = tool("groups").rows
    assert ["newer", "unknown", "Pondering", "", ""] in rows
    assert group in [row[0] for row in rows] and "gone" not in [row[0] for row in rows]
    assert {"group": "newer", "type": "unknown", "state": "Pondering", "members": None, "lag": None} in tool(
        "groups", "--json"
    ).json


def test_a_described_group_shows_every_partition(tool: Tool, topic: str, group: str) -> None:
    assert tool("groups", "describe", group).rows == [[topic, "0", "2", "10", "8", ""]]


@pytest.mark.parametrize(
    ("target", "offset"), [("earliest", 0), ("latest", 10), ("7", 7), ("-3", 7), ("2000-01-01", 0)]
)
def test_a_group_goes_where_it_is_told(tool: Tool, topic: str, group: str, target: str, offset: int) -> None:
    said = tool("groups", "reset", group, topic, "--to", target, "-p", "0", "-y")
    assert said.rows == [[topic, "0", "2", str(offset)]]
    assert tool("groups", "describe", group, "--json").json["partitions"][0]["committed"] == offset


def test_a_dry_run_changes_nothing(tool: Tool, topic: str, group: str) -> None:
    assert tool("groups", "reset", group, topic, "--to", "latest", "-n").code == 0
    assert tool("groups", "describe", group, "--json").json["partitions"][0]["committed"] == 2


def test_a_mistyped_group_is_refused_and_not_created(tool: Tool, topic: str, group: str) -> None:
    words = ("groups", "reset", f"{group}x", topic, "--to", "latest", "-y")
    absent = f"there is no group {group}x; did you mean {group}?"
    assert (tool(*words).code, tool(*words).err) == (
        1,
        f"ottla: {absent} use --create to create it with these offsets\n",
    )
    assert tool(*words, "-n").code == 1
    assert f"{group}x" not in [row[0] for row in tool("groups").rows]
    assert tool(*words, "--create", "-p", "0").rows == [[topic, "0", "", "10"]]
    assert tool("groups", "describe", f"{group}x", "--json").json["partitions"][0]["committed"] == 10


def test_a_deleted_group_is_gone(tool: Tool, group: str) -> None:
    assert tool("groups", "delete", group, "-y").code == 0
    assert group not in [row[0] for row in tool("groups").rows]
    assert tool("groups", "describe", group).code == 1


def test_of_several_groups_the_deleted_ones_and_those_that_are_left_are_told(
    tool: Tool, bootstrap: str, topic: str, group: str
) -> None:
    live = f"{group}_live"
    with Consumer(bootstrap, group_id=live) as member:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        said = tool("groups", "delete", live, group, group, "-y", "--json")
        assert (said.code, said.json) == (1, {"deleted": [group]})
        assert json.loads(said.err) == {
            "error": "NON_EMPTY_GROUP",
            "message": f"{live}: the group has members; stop them first",
        }
    said = tool("groups", "delete", live, "-y")
    assert (said.code, said.err) == (0, f"deleted {live}\n")


def test_a_target_that_is_none_is_a_usage_error(tool: Tool, topic: str, group: str) -> None:
    said = tool("groups", "reset", group, topic, "--to", "yesterday")
    assert said.code == 2
    assert "yesterday" in said.err


def test_names_of_groups_and_clients_do_not_steer_the_terminal(bootstrap: str, topic: str) -> None:
    name = f"{topic}[/x]\x1b[2J"
    with Consumer(bootstrap, group_id=name, client_id="evil\x1b]0;title\x07") as member:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        for said in (
            on_terminal("groups", "describe", name, OTTLA_BOOTSTRAP_SERVERS=bootstrap),
            on_terminal("groups", "reset", name, topic, "--to", "earliest", "-y", OTTLA_BOOTSTRAP_SERVERS=bootstrap),
        ):
            assert rf"{topic}[/x]\x1b[2J" in said.out and r"evil\x1b]0;title\x07" in said.out
            assert "\x1b[2J" not in said.out and "\x1b]" not in said.out
    asked = on_terminal("groups", "delete", name, typed=[("?", b"y\n")], OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert asked.code == 0 and asked.out.count(rf"{topic}[/x]\x1b[2J") == 2
