"""Kafka's tools that reset offsets: times, spans and plans, what is reset, and what is refused.

The cluster is a table of answers; nothing is sent.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.cli.kafka.groups import consumer_group, share_group, streams_reset
from ottla.cli.kafka.groups.consumer_group_reset import csv_text, duration_ms, partitions_of, timestamp
from ottla.cli.kafka.program.option import Usage
from ottla.cli.kafka.program.tool import Failed
from ottla.client import CommittedOffset, ErrorCode, KafkaError, OffsetSpec, TopicPartition
from ottla.client.admin.result import ListedOffset, Results
from tests.cli.test_kafka_shown import run
from tests.cli.tool import Said

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")


# ---- values of the resets


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", 86_400_000),
        ("PT1H", 3_600_000),
        ("pt2m", 120_000),
        ("PT0.5S", 500),
        ("PT1,25S", 1250),
        ("PT3.0019S", 3001),
        ("P1DT1H1M1S", 90_061_000),
        ("PT-1M", -60_000),
        ("-PT1M", -60_000),
        ("-PT-1M", 60_000),
        ("+P2D", 172_800_000),
    ],
)
def test_a_span_of_java_is_milliseconds(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1D", "P1W", "PT1.5M"])
def test_what_is_no_span_of_java_is_refused(text: str) -> None:
    with pytest.raises(Failed, match=r"^Text cannot be parsed to a Duration$"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01.000", 1000),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T01:00:00.000+01", 0),
        ("1969-12-31T23:00:00.000-0100", 0),
    ],
)
def test_a_moment_is_in_utc_unless_it_has_a_zone(text: str, milliseconds: int) -> None:
    assert timestamp(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1970-01-01", "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"),
        ("1970-01-01T00:00:00", 'Unparseable date: "1970-01-01T00:00:00Z"'),
        ("1970-13-01T00:00:00.000", 'Unparseable date: "1970-13-01T00:00:00.000Z"'),
        ("1970-01-01T00:00:00.000+1", 'Unparseable date: "1970-01-01T00:00:00.000+1"'),
    ],
)
def test_what_is_no_moment_is_refused(text: str, why: str) -> None:
    with pytest.raises(Failed) as raised:
        timestamp(text)
    assert str(raised.value) == f"java.text.ParseException: {why}"


@pytest.mark.parametrize(("text", "numbers"), [("t:0", [0]), ("t:3,1", [3, 1]), ("t:-1", [-1])])
def test_partitions_are_named_after_their_topic(text: str, numbers: list[int]) -> None:
    assert partitions_of(text) == [TopicPartition("t", number) for number in numbers]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("t:", "Invalid topic arg 't:', expected topic name and partitions"),
        ("t:0:1", "Invalid topic arg 't:0:1', expected topic name and partitions"),
        ("t:0,x", "Invalid partition 'x' specified in topic arg 't:0,x''"),
    ],
)
def test_partitions_that_are_no_numbers_are_refused(text: str, why: str) -> None:
    with pytest.raises(Usage) as raised:
        partitions_of(text)
    assert str(raised.value) == why


def test_an_exported_plan_has_the_group_if_there_are_several_and_quotes_as_jackson_does() -> None:
    plans = {"g": {T1: 7, T0: 5}, "of many words": {TopicPartition("x" * 24, 0): 1, TopicPartition("y" * 25, 0): 2}}
    assert csv_text({"g": plans["g"]}, single=True) == "t,0,5\nt,1,7\n"
    assert csv_text(plans, single=False) == (
        f'g,t,0,5\ng,t,1,7\n"of many words",{"x" * 24},0,1\n"of many words","{"y" * 25}",0,2\n'
    )
    assert csv_text({'a"b': {T0: 1}}, single=False) == '"a""b",t,0,1\n'


# ---- kafka-consumer-groups --reset-offsets


def described(*partitions: Any, **errors: KafkaError) -> Results[str, Any]:
    parts = [SimpleNamespace(partition=tp.partition, leader=leader, replicas=[]) for tp, leader in partitions]
    return Results({} if errors else {"t": SimpleNamespace(partitions=parts)}, errors)


def resetting(state: str | KafkaError = "Empty", committed: dict[TopicPartition, int] | None = None) -> Mock:
    """Topic t has offsets 10 to 20 in both partitions."""
    client = Mock()
    if isinstance(state, KafkaError):
        client.describe_group.side_effect = state
    else:
        client.describe_group.return_value = SimpleNamespace(state=state)
    client.list_group_offsets.return_value = {tp: CommittedOffset(at) for tp, at in (committed or {}).items()}
    topic = described((T0, 1), (T1, 1))
    client.describe_topics.side_effect = lambda names: topic if list(names) else Results({}, {})
    ends = {OffsetSpec.EARLIEST: 10, OffsetSpec.LATEST: 20}
    client.list_offsets.side_effect = lambda wanted: Results(
        {tp: ListedOffset(ends.get(spec, 15), -1, None) for tp, spec in wanted.items()}, {}
    )
    return client


def reset(client: Mock, *words: str, scope: str = "--all-topics", how: str = "--dry-run") -> Said:
    words = ("--reset-offsets", "--group", "g", *scope.split(), how, *words)
    return run(consumer_group, "kafka-consumer-groups", client, *words)


def rows(said: Said) -> list[list[str]]:
    return [line.split() for line in said.out.splitlines() if line][1:]


@pytest.mark.parametrize(
    ("words", "offsets", "warned"),
    [
        (("--to-earliest",), (10, 10), ""),
        (("--to-latest",), (20, 20), ""),
        (("--to-current",), (12, 20), ""),
        (("--to-offset", "15"), (15, 15), ""),
        (("--to-offset", "9"), (10, 10), "New offset (9) is lower than earliest offset"),
        (("--to-offset", "21"), (20, 20), "New offset (21) is higher than latest offset"),
        (("--to-offset", "20"), (20, 20), ""),
        (("--to-offset", "10"), (10, 10), ""),
    ],
)
def test_new_offsets_are_within_their_partitions(words: tuple[str, ...], offsets: tuple[int, int], warned: str) -> None:
    for how in ("--dry-run", "--execute"):
        client = resetting(committed={T0: 12})
        said = reset(client, *words, scope="--topic t", how=how)
        assert said.code == 0, said.err
        assert rows(said) == [["g", "t", "0", str(offsets[0])], ["g", "t", "1", str(offsets[1])]]
        assert (warned in said.err, "WARN" in said.err) == (True, bool(warned))
        if how == "--execute":
            client.alter_group_offsets.assert_called_once_with("g", {T0: offsets[0], T1: offsets[1]})
        else:
            assert not client.alter_group_offsets.called


def test_offsets_are_shifted_from_where_the_group_is() -> None:
    client = resetting(committed={T0: 12, T1: 19})
    assert rows(reset(client, "--shift-by", "-1")) == [["g", "t", "0", "11"], ["g", "t", "1", "18"]]
    assert rows(reset(client, "--shift-by", "2")) == [["g", "t", "0", "14"], ["g", "t", "1", "20"]]
    said = reset(resetting(committed={T0: 12}), "--shift-by", "1", scope="--topic t")
    assert said.code == 1
    assert said.err.startswith("Cannot shift offset for partition t-1 since there is no current committed offset\n")


@pytest.mark.parametrize(
    ("state", "offsets"),
    [("Empty", 1), ("Dead", 1), (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), 1), ("Stable", 0)],
)
def test_only_a_group_without_members_is_reset(state: str | KafkaError, offsets: int) -> None:
    said = reset(resetting(state, {T0: 12}), "--to-latest")
    assert said.code == 0
    assert len(rows(said)) == offsets + (state == "Stable")
    why = "Assignments can only be reset if the group 'g' is inactive, but the current state is Stable."
    assert (why in said.out) is (state == "Stable")
    said = reset(resetting(REFUSED), "--to-latest")
    assert "not you" in said.out + said.err


@pytest.mark.parametrize(
    ("topics", "scope", "why"),
    [
        (described((T0, 1), (T1, None)), "--topic t", 'The partitions "t-1" have no leader'),
        (described((T0, 1)), "--topic t:0,1,2", 'The partitions "t-1,t-2" do not exist'),
        (
            described(t=KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
            "--topic t:0",
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host",
        ),
    ],
)
def test_partitions_must_be_there_with_a_leader(topics: Any, scope: str, why: str) -> None:
    client = resetting()
    client.describe_topics.side_effect = lambda names: topics if list(names) else Results({}, {})
    said = reset(client, "--to-latest", scope=scope, how="--execute")
    assert why in said.out + said.err
    assert not client.alter_group_offsets.called


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("t,0,15\n\nt, 1, 99\n", {T0: 15, T1: 20}),
        ("g,t,0,15\nother,t,1,12\n", {T0: 15}),
        ("other,t,0,15\n", None),
    ],
)
def test_a_plan_is_of_its_group(tmp_path: Path, text: str, offsets: dict[TopicPartition, int] | None) -> None:
    (tmp_path / "plan.csv").write_text(text)
    client = resetting()
    words = ("--from-file", str(tmp_path / "plan.csv"))
    said = reset(client, *words, scope="", how="--execute")
    assert said.code == 0
    client.alter_group_offsets.assert_called_once_with("g", offsets or {})
    assert ("Error: No reset plan for group g found" in said.out) is (offsets is None)
    for line in ("t,0", "a,b,c,d,e", "t,x,1", "t,0,x"):
        (tmp_path / "plan.csv").write_text(f"t,0,1\n{line}\n")
        said = reset(client, *words, scope="")
        why = f"{tmp_path / 'plan.csv'}, line 2: expected topic,partition,offset or group,topic,..."
        assert why in said.out + said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--reset-offsets", "--dry-run", "--to-latest"), "Option [reset-offsets] takes one of these options:"),
        (
            ("--reset-offsets", "--dry-run", "--execute", "--group", "g"),
            "Option [reset-offsets] only accepts one of [execute] and [dry-run]",
        ),
        (
            ("--reset-offsets", "--group", "g", "--dry-run", "--to-latest"),
            "One of the reset scopes should be defined: --all-topics, --topic.",
        ),
        (
            ("--reset-offsets", "--group", "g", "--dry-run", "--all-topics"),
            "Option '[reset-offsets]' requires one of the following scenarios:",
        ),
        (
            ("--reset-offsets", "--group", "g", "--dry-run", "--all-topics", "--to-latest", "--to-earliest"),
            'Option "[to-earliest]" can\'t be used with option "[to-latest]"',
        ),
    ],
)
def test_a_reset_that_says_too_little_or_too_much_is_refused(words: tuple[str, ...], why: str) -> None:
    said = run(consumer_group, "kafka-consumer-groups", resetting(committed={T0: 1}), *words)
    assert said.code == 1
    assert why in said.err


# ---- kafka-share-groups


def shares(state: str | KafkaError = "Empty") -> Mock:
    client = resetting()
    if isinstance(state, KafkaError):
        client.describe_share_group.side_effect = state
    else:
        client.describe_share_group.return_value = SimpleNamespace(state=state)
    client.list_share_group_offsets.return_value = Results({T1: None, T0: None}, {})
    return client


@pytest.mark.parametrize(
    ("how", "offset"), [("--to-earliest", "10"), ("--to-latest", "20"), ("--to-datetime 1970-01-01T00:00:00.015", "15")]
)
def test_a_share_group_is_reset_in_the_topics_that_it_has_or_that_are_named(how: str, offset: str) -> None:
    for scope, partitions in (("--all-topics", [T0, T1]), ("--topic t:1", [T1])):
        for execute in ("--dry-run", "--execute"):
            client = shares()
            words = ("--reset-offsets", "--group", "g", *scope.split(), *how.split(), execute)
            said = run(share_group, "kafka-share-groups", client, *words)
            assert said.code == 0, said.err
            assert rows(said) == [["g", "t", str(tp.partition), offset] for tp in partitions]
            wanted = [call("g", dict.fromkeys(partitions, int(offset)))] if execute == "--execute" else []
            assert client.alter_share_group_offsets.call_args_list == wanted


@pytest.mark.parametrize(
    ("state", "code", "err"),
    [
        ("Dead", 0, ""),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), 0, ""),
        ("Stable", 1, "Share group 'g' is not empty.\n"),
        (REFUSED, 1, "not you\n"),
    ],
)
def test_a_share_group_is_reset_when_it_has_no_members(state: str | KafkaError, code: int, err: str) -> None:
    client = shares(state)
    words = ("--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute")
    said = run(share_group, "kafka-share-groups", client, *words)
    assert (said.code, said.err) == (code, err)
    assert client.alter_share_group_offsets.called is (code == 0)


@pytest.mark.parametrize(
    ("answer", "told", "statuses"),
    [
        (Results({"t": None}, {"u": REFUSED}), "", {"t": "Successful", "u": "Error: not you"}),
        (
            KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no g"),
            "\nError: no g\n",
            {"t": "Error: no g", "u": "Error: no g"},
        ),
        (
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "odd"),
            "\nError: Encounter some unknown error: org.apache.kafka.common.errors.UnknownServerException: odd\n",
            {"t": "Error: odd", "u": "Error: odd"},
        ),
    ],
)
def test_topics_of_a_share_group_are_forgotten_one_by_one(answer: Any, told: str, statuses: dict[str, str]) -> None:
    client = Mock()
    client.delete_share_group_offsets.side_effect = [answer]
    words = ("--delete-offsets", "--group", "g", "--topic", "u", "--topic", "t", "--topic", "u")
    said = run(share_group, "kafka-share-groups", client, *words)
    client.delete_share_group_offsets.assert_called_once_with("g", ["t", "u"])
    lines = [f"{topic:<15} {status}" for topic, status in statuses.items()]
    assert said == (0, "\n".join([f"{told}\nTOPIC           STATUS", *lines]) + "\n", "")


# ---- kafka-streams-application-reset


def streams(*, members: tuple[str, ...] = (), state: KafkaError | None = None) -> Mock:
    client = resetting(committed={T0: 12})
    client.describe_group.side_effect = [
        state or SimpleNamespace(members=[SimpleNamespace(id=each) for each in members])
    ]
    client.list_topics.return_value = [
        SimpleNamespace(name=name) for name in ("t", "g-a-changelog", "g-b-repartition", "h-a-changelog")
    ]
    client.delete_topics.return_value = Results({}, {})
    client.describe_topic.return_value = described((T0, 1), (T1, 1)).succeeded["t"]
    return client


def reset_app(client: Mock, *words: str) -> Said:
    return run(streams_reset, "kafka-streams-application-reset", client, "--application-id", "g", *words)


def test_an_application_is_reset_with_its_internal_topics() -> None:
    client = streams(state=KafkaError(ErrorCode.GROUP_ID_NOT_FOUND))
    said = reset_app(client, "--input-topics", "t")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "Reset-offsets for input topics [t]\n"
        "Following input topics offsets will be reset to (for consumer group g)\n"
        "Topic: t Partition: 0 Offset: 10\nTopic: t Partition: 1 Offset: 10\nDone.\n"
        "Deleting inferred internal topics [g-a-changelog, g-b-repartition]\nDone.\n"
    )
    client.alter_group_offsets.assert_called_once_with("g", {T0: 10, T1: 10})
    client.delete_topics.assert_called_once_with(["g-a-changelog", "g-b-repartition"])
    client = streams()
    assert reset_app(client, "--input-topics", "t", "--dry-run", "--internal-topics", "g-a-changelog").code == 0
    assert not client.alter_group_offsets.called and not client.delete_topics.called


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("--to-offset 15", (15, 15)),
        ("--to-latest", (20, 20)),
        ("--shift-by -1", (11, 19)),
        ("--to-datetime 1970-01-01T00:00:00.001", (15, 15)),
        ("--by-duration PT1M", (15, 15)),
        ("--from-file {plan}", (11, 20)),
        ("--to-offset 5", (10, 10)),
    ],
)
def test_an_application_is_reset_to_what_is_named(tmp_path: Path, words: str, offsets: tuple[int, int]) -> None:
    (tmp_path / "plan").write_text("t,0,11\nt,1,30\n")
    client = streams()
    said = reset_app(client, "--input-topics", "t", *words.format(plan=tmp_path / "plan").split())
    assert said.code == 0, said.err
    client.alter_group_offsets.assert_called_once_with("g", {T0: offsets[0], T1: offsets[1]})
    told = {"--to-offset 5": "lower than earliest offset. Value will be set to 10"}
    told["--from-file {plan}"] = "New offset (30) is higher than latest offset. Value will be set to 20"
    assert told.get(words, "") in said.out
    assert ("New offset" in said.out) is (words in told)


@pytest.mark.parametrize(
    ("words", "text", "err"),
    [
        ("--by-duration 1h", "", "java.time.format.DateTimeParseException: Text cannot be parsed to a Duration"),
        (
            "--to-datetime 1970",
            "",
            (
                "Resetting offsets failed.\nERROR: java.text.ParseException: Error parsing timestamp. It does not "
                "contain a 'T' according to ISO8601 format"
            ),
        ),
        (
            "--from-file {plan}",
            "",
            (
                "Resetting offsets failed.\nERROR: java.text.ParseException: Error parsing reset plan CSV file. It is "
                "empty,"
            ),
        ),
        (
            "--from-file {plan}",
            "t,0",
            (
                "Resetting offsets failed.\nERROR: java.text.ParseException: Reset plan CSV file is not following the "
                "format `TOPIC,PARTITION,OFFSET`."
            ),
        ),
        (
            "--from-file {plan}",
            "t,0,x",
            "Resetting offsets failed.\nERROR: {plan}: t,0,x: partition and offset must be whole numbers",
        ),
        ("--from-file {plan}", "t,0,1", "{plan} has no offset for t-1"),
    ],
)
def test_a_reset_of_an_application_that_cannot_be_is_told(tmp_path: Path, words: str, text: str, err: str) -> None:
    plan = tmp_path / "plan"
    plan.write_text(text)
    client = streams()
    said = reset_app(client, "--input-topics", "t", *words.format(plan=plan).split())
    assert (said.code, said.err) == (1, f"ERROR: {err.format(plan=plan)}\n")
    assert not client.alter_group_offsets.called and not client.delete_topics.called


def test_an_application_with_members_is_reset_by_force_only() -> None:
    client = streams(members=("m1", "m2"))
    said = reset_app(client)
    assert said.code == 1
    assert "Consumer group 'g' is still active and has following members: [m1, m2]. Make sure" in said.err
    assert not client.remove_group_members.called
    said = reset_app(streams(members=("m1",)), "--force")
    assert said.out.startswith(
        "Force deleting all active members in the group: g\n"
        "No input or intermediate topics specified. Skipping seek.\nDeleting inferred"
    )
    said = reset_app(streams(state=REFUSED))
    why = "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.ClusterAuthorizationException"
    assert said == (1, "", f"ERROR: {why}: not you\n")


def test_topics_of_an_application_that_stay_are_told() -> None:
    client = streams()
    client.delete_topics.return_value = Results({}, {"g-a-changelog": REFUSED})
    said = reset_app(client)
    refused = "org.apache.kafka.common.errors.ClusterAuthorizationException: not you"
    why = "java.lang.RuntimeException: Encountered an error deleting one or more topics"
    assert (said.code, said.err) == (1, f"ERROR: deleting topic g-a-changelog\n{refused}\nERROR: {why}\n")
    said = reset_app(client := streams(), "--internal-topics", "h-a-changelog")
    assert (said.code, "Invalid topic specified in the --internal-topics option" in said.err) == (1, True)
    assert not client.delete_topics.called


def test_topics_of_an_application_that_are_not_there_are_named() -> None:
    client = streams()
    said = reset_app(client, "--input-topics", "t,no", "--intermediate-topics", "gone", "--dry-run")
    assert (said.code, said.err) == (1, "")
    assert said.out.startswith(
        "----Dry run displays the actions which will be performed when running Streams Reset Tool----\n"
        "WARN: `--intermediate-topics` is deprecated and will be removed in a future release\n"
        "Reset-offsets for input topics [t, no]\nSeek-to-end for intermediate topics [gone]\n"
        "Following input topics are not found, skipping them\nTopic: no\n"
        "Following intermediate topics are not found, skipping them\nTopic:gone\n"
        "Following input topics offsets will be reset to"
    )
    said = reset_app(streams(), "--intermediate-topics", "t")
    assert (said.code, "will be reset to end (for consumer group g)\nTopic: t\nTopic: t\nDone." in said.out) == (
        0,
        True,
    )
