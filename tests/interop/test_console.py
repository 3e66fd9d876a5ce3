"""Apache's own tools against the node answer what the scenes of tests/cli/console say, where our tools must too."""

import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.console_scene import play, scenes
from tests.cli.kafka_tool import kafka
from tests.interop.apache_tool import ApacheTools
from tests.interop.server import Server, apache

pytestmark = pytest.mark.interop


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
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    server = Server(apache(), tmp_path, settings)
    server.start()
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
    finally:
        server.kill()
