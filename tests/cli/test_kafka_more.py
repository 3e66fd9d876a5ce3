"""Kafka's tools about what a single open node does not have: tokens, new voters, brokers that are gone, elections.

The cluster is a table of answers; nothing is sent.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import Mock, call

import pytest

from ottla.cli.kafka.metadata import metadata_quorum
from ottla.cli.kafka.security import delegation_token
from ottla.cli.kafka.server import cluster
from ottla.cli.kafka.topics import leader_election
from ottla.client import DelegationToken, ErrorCode, KafkaError, TopicPartition
from ottla.client.admin.result import ClusterDescription
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.ids import Uuid, uuid_text
from ottla.operations.elections import ElectionOutcome
from tests.cli.kafka_tool import kafka
from tests.cli.test_kafka_shown import run
from tests.cli.test_start import server_properties
from tests.cli.tool import Said

# ---- kafka-delegation-tokens

HOUR_MS = 3_600_000
#: 2001-09-09 01:46 in UTC.
ISSUED_MS = 1_000_000_000_000


def token(name: str, *renewers: str) -> DelegationToken:
    times = (ISSUED_MS, ISSUED_MS + HOUR_MS, ISSUED_MS + 24 * HOUR_MS)
    return DelegationToken(name, f"hmac of {name}".encode(), "User:ann", "User:bob", *times, renewers)


HEADS = (
    "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
    "ISSUEDATE       EXPIRYDATE      MAXDATE        "
)
ONE = (
    "one             aG1hYyBvZiBvbmU=               User:ann        User:bob        [User:carl, User:dora]    "
    "2001-09-09T01:46 2001-09-09T02:46 2001-09-10T01:46"
)
TWO = (
    "two             aG1hYyBvZiB0d28=               User:ann        User:bob        []                        "
    "2001-09-09T01:46 2001-09-09T02:46 2001-09-10T01:46"
)


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    file = tmp_path / "client.properties"
    file.write_text("client.id=c\n")

    def said(client: Mock, *words: str) -> tuple[int, list[str], str]:
        found = run(delegation_token, "kafka-delegation-tokens", client, "--command-config", str(file), *words)
        return found.code, found.out.split("\n"), found.err

    return said


def test_a_token_is_created_for_its_owner(tokens: Any) -> None:
    client = Mock()
    client.create_delegation_token.return_value = token("one", "User:carl", "User:dora")
    words = ("--renewer-principal", "User:carl", "--renewer-principal", " User:dora", "--max-life-time-period", "9")
    assert tokens(client, "--create", *words, "--owner-principal", "User:ann") == (
        0,
        [
            "Calling create token operation with renewers :[User:carl, User:dora] , max-life-time-period :9",
            "Created delegation token with tokenId : one",
            "",
            HEADS,
            "",
            ONE,
            "",
        ],
        "",
    )
    asked = {"renewers": ["User:carl", "User:dora"], "max_lifetime_ms": 9}
    assert client.create_delegation_token.call_args == call(**asked, owner="User:ann")
    tokens(client, "--create", *words)
    assert client.create_delegation_token.call_args == call(**asked, owner=None)


@pytest.mark.parametrize("owner", ["ann", "User:", ":ann"])
def test_a_principal_has_a_type_and_a_name(tokens: Any, owner: str) -> None:
    said = tokens(Mock(), "--describe", "--owner-principal", owner)
    assert said[2] == f"expected a string in format principalType:principalName but got {owner}\n"


def test_tokens_are_described_by_owner_or_all(tokens: Any) -> None:
    client = Mock()
    client.describe_delegation_tokens.return_value = [token("one", "User:carl", "User:dora"), token("two")]
    table = ["Total number of tokens : 2", HEADS, "", ONE, "", TWO, ""]
    current = "Calling describe token operation for current user."
    assert tokens(client, "--describe") == (0, [current, *table], "")
    assert client.describe_delegation_tokens.call_args == call(None)
    words = ("--owner-principal", "User:ann", "--owner-principal", "User:bob")
    owners = "Calling describe token operation for owners: [User:ann, User:bob]"
    assert tokens(client, "--describe", *words) == (0, [owners, *table], "")
    assert client.describe_delegation_tokens.call_args == call(["User:ann", "User:bob"])


@pytest.mark.parametrize(("verb", "period"), [("renew", "renew"), ("expire", "expiry")])
def test_a_token_is_renewed_and_ended_by_its_hmac(tokens: Any, verb: str, period: str) -> None:
    client = Mock()
    asked = getattr(client, f"{verb}_delegation_token")
    asked.return_value = ISSUED_MS + HOUR_MS
    words = ("--hmac", "aG1hYyBvZiBvbmU=", f"--{period}-time-period", "-1")
    assert tokens(client, f"--{verb}", *words) == (
        0,
        [
            f"Calling {verb} token operation with hmac :aG1hYyBvZiBvbmU= , {verb}-time-period :-1",
            f"Completed {verb} operation. New expiry date : 2001-09-09T02:46",
        ],
        "",
    )
    assert asked.call_args == call(b"hmac of one", **{f"{period}_period_ms": -1})
    code, _, err = tokens(client, f"--{verb}", "--hmac", "a-b", f"--{period}-time-period", "-1")
    assert (code, err.startswith("invalid HMAC a-b: ")) == (1, True)


@pytest.mark.parametrize(
    ("action", "refused"),
    [
        ("create", "hmac renew-time-period expiry-time-period"),
        ("renew", "renewer-principal max-life-time-period expiry-time-period owner-principal"),
        ("expire", "max-life-time-period renew-time-period owner-principal"),
        ("describe", "renew-time-period max-life-time-period hmac expiry-time-period"),
    ],
)
def test_each_action_refuses_the_options_of_the_others(tokens: Any, action: str, refused: str) -> None:
    needs = {
        "create": ["--max-life-time-period", "1"],
        "renew": ["--hmac", "a", "--renew-time-period", "1"],
        "expire": ["--hmac", "a", "--expiry-time-period", "1"],
        "describe": [],
    }
    for option in refused.split():
        code, _, err = tokens(Mock(), f"--{action}", *needs[action], f"--{option}", "1")
        assert (code, err.splitlines()[0]) == (1, f'Option "[{action}]" can\'t be used with option "[{option}]"')


# ---- kafka-metadata-quorum


def controller(directory: Path, meta: str | None = "directory.id={id}\n", **changes: str) -> str:
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093,OTHER://h:9094"
    names = {"controller_listener_names": "CONTROLLER,OTHER", "listeners": listeners}
    protocols = {"listener_security_protocol_map": "CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    file = server_properties(directory, **{**names, **protocols, **changes})
    if meta is not None:
        (directory / "data").mkdir()
        text = meta.replace("{id}", uuid_text(Uuid(b"\1" * 16)))
        (directory / "data" / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id=7\n{text}")
    return file


def test_a_controller_is_added_with_its_directory_and_endpoints(tmp_path: Path) -> None:
    client = Mock()
    words = ("--command-config", controller(tmp_path), "add-controller")
    said = run(metadata_quorum, "kafka-metadata-quorum", client, *words)
    about = f"controller 7 with directory id {uuid_text(Uuid(bytes([1] * 16)))} and endpoints: "
    endpoints = "CONTROLLER://127.0.0.1:9093, OTHER://h:9094\n"
    assert said == (0, f"Added {about}{endpoints}", "")
    at = {"CONTROLLER": ("127.0.0.1", 9093), "OTHER": ("h", 9094)}
    assert client.add_raft_voter.call_args_list == [call(7, Uuid(b"\1" * 16), at)]
    said = run(metadata_quorum, "kafka-metadata-quorum", client, *words, "--dry-run")
    assert said == (0, f"DRY RUN of adding {about}{endpoints}", "")
    assert client.add_raft_voter.call_count == 1


@pytest.mark.parametrize(
    ("meta", "changes", "words"),
    [
        (None, {}, "Unable to read meta.properties from {data}"),
        ("", {}, "No directory id found in {data}"),
        (
            "directory.id={id}\n",
            {"process_roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0"},
            (
                "process.roles did not contain 'controller' in configuration file. Is this a valid controller "
                "configuration file?"
            ),
        ),
    ],
)
def test_only_a_formatted_controller_is_added(
    tmp_path: Path, meta: str | None, changes: dict[str, str], words: str
) -> None:
    client = Mock()
    file = controller(tmp_path, meta, **changes)
    said = run(metadata_quorum, "kafka-metadata-quorum", client, "--command-config", file, "add-controller")
    assert (said.code, said.out, said.err) == (1, "", words.replace("{data}", str(tmp_path / "data")) + "\n")
    client.add_raft_voter.assert_not_called()


# ---- kafka-cluster

SERVER = ("--bootstrap-server", "b:1")
NODES = (ClusterNode(1, "b1", 9092, None), ClusterNode(20, "broker-2", 19092, "rack-number-2"))


def asked(client: Mock, *words: str) -> Said:
    with mock.patch.object(cluster, "admin", return_value=nullcontext(client)):
        return kafka("kafka-cluster", *words)


def test_endpoints_stand_under_their_headings() -> None:
    client = Mock()
    client.describe_cluster.return_value = ClusterDescription("c", None, NODES, frozenset({20}))
    said = asked(client, "list-endpoints", *SERVER, "--include-fenced-brokers")
    assert said.out == (
        "ID         HOST     PORT       RACK          STATE      ENDPOINT_TYPE  \n"
        "1          b1       9092       null          unfenced   broker         \n"
        "20         broker-2 19092      rack-number-2 fenced     broker         \n"
    )
    assert client.describe_cluster.call_args == call(include_fenced=True)
    client.describe_cluster.return_value = ClusterDescription("c", None, NODES[:1])
    said = asked(client, "list-endpoints", "--bootstrap-controller", "c:1")
    assert said.out == (
        "ID         HOST PORT       RACK       ENDPOINT_TYPE  \n1          b1 9092       null       controller     \n"
    )
    assert client.describe_cluster.call_args == call(include_fenced=False)


def test_headings_without_endpoints_have_apaches_widths() -> None:
    client = Mock()
    client.describe_cluster.return_value = ClusterDescription("c", None, ())
    heads = "ID         HOST" + " " * 97 + "PORT       RACK       STATE      ENDPOINT_TYPE  \n"
    assert asked(client, "list-endpoints", *SERVER) == (0, heads, "")


def test_fenced_brokers_are_known_to_brokers_only() -> None:
    words = ("list-endpoints", "--bootstrap-controller", "c:1", "--include-fenced-brokers")
    said = kafka("kafka-cluster", *words)
    why = "The option --include-fenced-brokers is only supported with --bootstrap-server option\n"
    assert said == (1, "", why)


@pytest.mark.parametrize(
    ("words", "old"),
    [
        (("unregister", "--id", "7"), "The target cluster does not support the broker unregistration API.\n"),
        (("list-endpoints",), "too old\n"),
    ],
)
def test_a_cluster_that_is_too_old_is_told_without_an_error(words: tuple[str, ...], old: str) -> None:
    for code, expected in ((ErrorCode.UNSUPPORTED_VERSION, (0, old)), (ErrorCode.REQUEST_TIMED_OUT, (1, ""))):
        client = Mock()
        client.unregister_broker.side_effect = client.describe_cluster.side_effect = KafkaError(code, "too old")
        said = asked(client, *words, *SERVER)
        assert (said.code, said.out) == expected
    client = Mock()
    said = asked(client, "unregister", "--id", "7", *SERVER)
    assert said == (0, "Broker 7 is no longer registered.\n", "")
    client.unregister_broker.assert_called_once_with(7)


# ---- kafka-leader-election


def elections(monkeypatch: pytest.MonkeyPatch, outcome: Any, *words: str) -> tuple[Any, Mock]:
    elect = Mock(side_effect=[outcome])
    monkeypatch.setattr(leader_election, "elect", elect)
    return run(leader_election, "kafka-leader-election", Mock(), *words), elect


def test_the_outcome_of_each_election_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    t = [TopicPartition("t", number) for number in range(5)]
    why = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "away")
    said, elect = elections(
        monkeypatch, ElectionOutcome(t[:2], t[2:4], {t[4]: why}), "--election-type", "unclean", "--all-topic-partitions"
    )
    assert said.out.splitlines() == [
        "Successfully completed leader election (UNCLEAN) for partitions t-0, t-1",
        "Valid replica already elected for partitions t-2, t-3",
        (
            "Error completing leader election (UNCLEAN) for partition: t-4: "
            "org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: away"
        ),
    ]
    assert (said.code, said.err) == (1, "1 replica(s) could not be elected\n")
    assert (elect.call_args.args[1], elect.call_args.kwargs) == (None, {"unclean": True})
    (tmp_path / "admin.properties").write_text("client.id=c\n")
    words = ("--election-type", "Preferred", "--topic", "t", "--partition", "3")
    config = ("--admin.config", str(tmp_path / "admin.properties"))
    said, elect = elections(monkeypatch, ElectionOutcome(t[:1], [], {}), *words, *config)
    assert said == (
        0,
        (
            "Option --admin.config has been deprecated and will be removed in a future version. Use --command-config "
            "instead.\nSuccessfully completed leader election (PREFERRED) for partitions t-0\n"
        ),
        "",
    )
    assert (elect.call_args.args[1], elect.call_args.kwargs) == ([t[3]], {"unclean": False})


@pytest.mark.parametrize(
    ("code", "out", "err"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to perform leader election\n", None),
        (ErrorCode.REQUEST_TIMED_OUT, "Timeout waiting for election results\n", None),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "", "org.apache.kafka.common.errors.UnknownServerException: no\n"),
    ],
)
def test_elections_that_fail_as_a_whole_are_told(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, out: str, err: str | None
) -> None:
    said, _ = elections(monkeypatch, KafkaError(code, "no"), "--election-type", "preferred", "--all-topic-partitions")
    assert said == (1, out, out if err is None else err)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Replica election data is empty"),
        ("[]", 'Replica election data is missing "partitions" field'),
        ('{"partitions": 1}', 'Replica election data is missing "partitions" field'),
        ('{"partitions": [1]}', "Expected JSON object, received 1"),
    ],
)
def test_a_file_of_elections_that_is_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "e.json").write_text(text)
    words = ("--election-type", "preferred", "--path-to-json-file", str(tmp_path / "e.json"))
    said, elect = elections(monkeypatch, None, *words)
    assert (said.code, said.err, elect.called) == (1, f"{why}\n", False)
