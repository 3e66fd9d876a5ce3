"""Apache's own tools against the node answer what the scenes of tests/cli/console say, where our tools must too."""

import shlex
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from ottla.client import Admin, TopicPartition
from tests.cli.console_scene import Run, play, scenes
from tests.cli.kafka_tool import kafka
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.side import Side
from tests.interop.oracle.test_streams import beat, counts, join
from tests.interop.server import HELD, Server, apache

pytestmark = pytest.mark.interop

_PATIENCE_S = 30


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


@pytest.mark.parametrize("path", scenes(), ids=lambda path: path.stem)
def test_apaches_tools_answer_as_the_scene_says(path: Path, server: Server, tools: ApacheTools, tmp_path: Path) -> None:
    play(path, tools, server.bootstrap, f"s{uuid.uuid4().hex[:8]}", tmp_path)


#: What needs a broker with an authorizer. {who} keeps the two tools apart.
_ACLS = """
--add --topic {who}t --allow-principal User:{who}ann --operation Read --operation describe
--add --topic {who}t --allow-principal User:{who}ann --operation Read
--add --topic {who}p --deny-principal User:{who}bob --operation Write --deny-host 1.2.3.4 --deny-host 5.6.7.8 \
    --resource-pattern-type prefixed
--list --topic {who}t
--list --topic {who}pxx --resource-pattern-type match
--list --topic {who}p --resource-pattern-type any
--list --principal User:{who}ann
--list --principal User:{who}nobody
--add --producer --topic {who}q --transactional-id {who}x --idempotent --allow-principal User:{who}c
--add --consumer --topic {who}q --group {who}g --allow-principal User:{who}c --allow-host 9.9.9.9
--list --topic {who}q
--list --group {who}g
--list --principal User:{who}c
--add --user-principal User:{who}zed --allow-principal User:{who}ann --operation CreateTokens
--list --user-principal User:{who}zed
--remove --topic {who}t --allow-principal User:{who}ann --operation Read --force
--list --topic {who}t
--remove --topic {who}p --resource-pattern-type prefixed --force
--list --topic {who}p --resource-pattern-type any
"""


def test_acls_are_set_and_shown_as_by_apaches_tool(tools: ApacheTools, tmp_path: Path) -> None:
    settings = {
        **HELD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    server = Server(apache(), tmp_path, settings)
    server.start()
    side = Side(server)
    try:
        for line in _ACLS.replace("\\\n", "").strip().splitlines():
            answers = []
            for run, who in ((tools, "Apaches"), (kafka, "Ours")):
                words = shlex.split(line.replace("{who}", who))
                said = run("kafka-acls", "--bootstrap-server", server.bootstrap, *words)
                # Apache's shows them in the order of a hash table.
                lines = sorted(each.strip() for each in said.out.replace(who, "{who}").splitlines())
                answers.append((line, said.code, lines))
            assert answers[0] == answers[1]
            # The next line finds what this one changed.
            side.settle()
    finally:
        side.close()
        server.kill()


def _joined(server: Server, group: str) -> Side:
    """A group of an application with one instance, which has its tasks."""
    side = Side(server)
    words = f"{group}-in"
    side.create(words, 2)
    application = counts(words)
    for part in application["subtopologies"]:
        for topic in (*part.get("repartition_source_topics", ()), *part.get("state_changelog_topics", ())):
            topic["name"] = topic["name"].replace(words, group)
        part["repartition_sink_topics"] = [f"{group}-words-repartition"] if "source_topics" in part else []
    reply = join(side, group, "a-member", application, note=False, client_tags=[])
    deadline = monotonic() + _PATIENCE_S
    epoch = reply.member_epoch
    while True:
        assert monotonic() < deadline, reply
        owned = {} if reply.active_tasks is None else {"active_tasks": reply.active_tasks}
        if owned:
            owned |= {"standby_tasks": [], "warmup_tasks": []}
        reply = beat(side, group, "a-member", epoch, note=False, **owned)
        assert reply.error_code == 0, reply
        epoch = reply.member_epoch
        found = side.ask("StreamsGroupDescribe", 0, note=False, group_ids=[group]).groups[0]
        if found.group_state == "Stable" and found.members[0].assignment.active_tasks:
            return side


def _ask(server: Server, run: Run, group: str, answers: list[object], line: str) -> None:
    words = line.replace("@", f"--bootstrap-server {server.bootstrap} --group {group}").split()
    found = run("kafka-streams-groups", *words)
    out = sorted(found.out.replace(group, "{group}").splitlines())
    answers.append((line.replace(group, "{group}"), found.code, out))


def test_a_streams_group_is_shown_and_changed_as_by_apaches_tool(
    server: Server, tools: ApacheTools, tmp_path: Path
) -> None:
    groups = [f"g{uuid.uuid4().hex[:8]}" for _ in range(2)]
    said: list[list[object]] = []
    runs: list[Run] = [tools, kafka]
    for run, group in zip(runs, groups, strict=True):
        side = _joined(server, group)
        answers: list[object] = []
        ask = partial(_ask, server, run, group, answers)
        for line in ("", "--verbose", "--members", "--members --verbose", "--state", "--state --verbose"):
            ask(f"@ --describe {line}")
        ask("@ --delete")
        ask("@ --reset-offsets --all-input-topics --to-earliest --dry-run")
        beat(side, group, "a-member", -1, note=False)
        ask("@ --describe --state")
        ask("@ --describe --members")
        with Admin(server.bootstrap) as admin:
            admin.alter_group_offsets(group, {TopicPartition(f"{group}-in", number): 0 for number in range(2)}).check()
        ask("@ --reset-offsets --all-input-topics --to-latest --dry-run")
        ask(f"@ --reset-offsets --input-topic {group}-in:1 --to-latest --execute --delete-internal-topic {group}-none")
        ask("@ --reset-offsets --all-input-topics --to-current --dry-run --export")
        ask(f"@ --delete-offsets --input-topic {group}-in:1")
        ask("@ --delete --delete-all-internal-topics")
        ask("@ --describe")
        side.close()
        said.append(answers)
    for theirs, ours in zip(*said, strict=True):
        assert theirs == ours
