"""Who votes before the log says it: the settings, this node alone, or voters that this node has not heard of yet."""

import uuid
from random import Random

import pytest

from ottla.broker.endpoint import advertise
from ottla.broker.metadata.registration import voter_endpoints
from ottla.broker.metadata.voters import asks_others, first_voters
from ottla.kernel.ids import Uuid, random_uuid, uuid_text
from ottla.raft.role import Election, Voter
from ottla.settings.server.settings import ServerSettings


def settings(**changes: str) -> ServerSettings:
    lines = {
        "process.roles": "controller",
        "node.id": "7",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return ServerSettings.parse({name: value for name, value in lines.items() if value})


@pytest.mark.parametrize(
    ("election", "voters"),
    [
        (Election(), []),
        (Election(3, leader_id=8), []),
        (Election(3, voted=Voter(8, Uuid(b"8" * 16))), []),
        (Election(3, leader_id=7), [7]),
        (Election(3, voted=Voter(7, Uuid(b"7" * 16))), [7]),
    ],
)
def test_a_controller_is_a_quorum_of_its_own_only_when_it_was_before(election: Election, voters: list[int]) -> None:
    assert [each.voter.node_id for each in first_voters(settings(), election)] == voters


def test_the_settings_of_a_static_quorum_go_first() -> None:
    fixed = settings(controller_quorum_bootstrap_servers="", controller_quorum_voters="7@127.0.0.1:9093,8@other:9093")
    found = first_voters(fixed, Election(3, leader_id=7))
    assert [(each.voter.node_id, each.endpoints[0].host) for each in found] == [(7, "127.0.0.1"), (8, "other")]


@pytest.mark.parametrize(
    ("servers", "asks"),
    [("127.0.0.1:9093", False), ("127.0.0.1:9094", True), ("127.0.0.1:9093,other:9093", True)],
)
def test_a_joining_controller_needs_another_to_ask(servers: str, asks: bool) -> None:
    assert asks_others(settings(controller_quorum_bootstrap_servers=servers)) is asks


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ("127.0.0.1", 9093)),
        ({"advertised_listeners": "CONTROLLER://n7.example:19093"}, ("n7.example", 19093)),
        ({"listeners": "CONTROLLER://:9093"}, ("localhost", 9093)),
        ({"listeners": "CONTROLLER://:9093", "controller_quorum_bootstrap_servers": "n8:9093"}, ("host7", 9093)),
        (
            {
                "listeners": "CONTROLLER://0.0.0.0:9093",
                "controller_quorum_bootstrap_servers": "",
                "controller_quorum_voters": "7@n7:19093,8@n8:9093",
            },
            ("n7", 19093),
        ),
    ],
)
def test_a_controller_tells_the_others_an_address_that_they_can_reach(
    changes: dict[str, str], told: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that says localhost has followers that fetch from themselves, so nothing is ever committed."""
    monkeypatch.setattr("ottla.broker.endpoint.host_name", lambda: "host7")
    [endpoint] = voter_endpoints(settings(**changes))
    assert (endpoint.host, endpoint.port) == told


@pytest.mark.parametrize(
    ("controllers", "told"),
    [("127.0.0.1:9093", "localhost"), ("n8:9093", "host7"), ("n8:9093,localhost:9093", "host7")],
)
def test_a_broker_on_all_addresses_tells_an_address_that_other_hosts_can_reach(
    controllers: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise followers on other hosts would fetch from themselves."""
    monkeypatch.setattr("ottla.broker.endpoint.host_name", lambda: "host7")
    both = settings(
        process_roles="broker,controller",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_quorum_bootstrap_servers=controllers,
    )
    assert advertise(both, both.listeners[0], 9092).host == told


def test_a_random_id_is_a_uuid_of_version_4() -> None:
    rng = Random(1)
    for _ in range(500):
        made = random_uuid(rng)
        found = uuid.UUID(bytes=bytes(made))
        assert (found.version, found.variant) == (4, uuid.RFC_4122)
        assert not uuid_text(made).startswith("-"), "tools take it for an option"
