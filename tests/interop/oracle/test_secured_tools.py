"""Apache's tools about a cluster, over SASL_SSL: as a user without rules and then as a super user, at both servers.

What they may not do they are told in the same words, and what they may do has the same result. `test_authorizer` asks
for each API as a user without rules, also in the short form.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from difflib import ndiff
from functools import partial
from pathlib import Path

import pytest

from ottla.client import Admin, NewTopic
from tests.cli.console_scene import answer
from tests.client.conftest import eventually
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.secured_server import USERS, SecuredServer, make_files, started
from tests.interop.secured import jaas

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(300)]

#: Each line is run by the user without rules, then by the super user. @: where and how the tool comes in.
SCENES = {
    "kafka-topics": """
        kafka-topics @ --create --topic made --partitions 2 --config retention.ms=7000
        kafka-topics @ --create --topic made
        kafka-topics @ --describe --topic made
        kafka-topics @ --describe --topic made --unavailable-partitions
        kafka-topics @ --list --topic ma.*
        kafka-topics @ --alter --topic made --partitions 3
        kafka-topics @ --describe --topic made
        kafka-topics @ --delete --topic made
        kafka-topics @ --delete --topic made
    """,
    "kafka-configs": """
        kafka-configs @ --alter --entity-type topics --entity-name secured --add-config retention.ms=8000
        kafka-configs @ --describe --entity-type topics --entity-name secured
        kafka-configs @ --alter --entity-type topics --entity-name secured --delete-config retention.ms
        kafka-configs @ --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2
        kafka-configs @ --describe --entity-type brokers --entity-name 1
        kafka-configs @ --alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000
        kafka-configs @ --describe --entity-type brokers --entity-default
        kafka-configs @ --alter --entity-type broker-loggers --entity-name 1 --add-config org.apache.kafka=WARN
        kafka-configs @ --alter --entity-type users --entity-name eve --add-config SCRAM-SHA-256=[password=secret]
        kafka-configs @ --alter --entity-type users --entity-name eve --add-config consumer_byte_rate=1000
        kafka-configs @ --describe --entity-type users --entity-name eve
        kafka-configs @ --alter --entity-type users --entity-name eve --delete-config SCRAM-SHA-256
        kafka-configs @ --describe --entity-type users --entity-name eve
        kafka-configs @ --alter --entity-type clients --entity-default --add-config request_percentage=50
        kafka-configs @ --describe --entity-type clients --entity-default
        kafka-configs @ --alter --entity-type ips --entity-name 10.0.0.1 --add-config connection_creation_rate=10
        kafka-configs @ --describe --entity-type ips
        kafka-configs @ --alter --entity-type groups --entity-name app --add-config consumer.session.timeout.ms=50000
        kafka-configs @ --describe --entity-type groups --entity-name app
        kafka-configs @ --alter --entity-type client-metrics --entity-name m --add-config interval.ms=1000
        kafka-configs @ --describe --entity-type client-metrics --entity-name m
    """,
    "kafka-client-metrics": """
        kafka-client-metrics @ --alter --name n --metrics org.apache --interval 2000
        kafka-client-metrics @ --list
        kafka-client-metrics @ --describe --name n
        kafka-client-metrics @ --delete --name n
        kafka-client-metrics @ --describe --name n
    """,
    "kafka-acls": """
        kafka-acls @ --add --topic given --allow-principal User:dan --operation Read
        kafka-acls @ --add --producer --topic given --transactional-id x --allow-principal User:dan --idempotent
        kafka-acls @ --add --consumer --topic giv --group g --deny-principal User:eve --resource-pattern-type prefixed
        kafka-acls @ --list --topic given --resource-pattern-type match
        kafka-acls @ --list --principal User:dan
        kafka-acls @ --remove --topic given --allow-principal User:dan --operation Read --force
        kafka-acls @ --remove --topic given --force
        kafka-acls @ --list --topic given
    """,
    "kafka-delegation-tokens": """
        kafka-delegation-tokens @ --create --max-life-time-period -1 --renewer-principal User:cid
        kafka-delegation-tokens @ --create --max-life-time-period -1 --owner-principal User:cid
        kafka-delegation-tokens @ --describe --owner-principal User:dan
        kafka-delegation-tokens @ --renew --renew-time-period -1 --hmac YQ==
        kafka-delegation-tokens @ --expire --expiry-time-period -1 --hmac YQ==
    """,
    "groups": """
        kafka-consumer-groups @ --reset-offsets --group app --topic secured --to-latest --execute
        kafka-consumer-groups @ --list
        kafka-consumer-groups @ --describe --group app
        kafka-consumer-groups @ --describe --group app --members
        kafka-consumer-groups @ --describe --group app --state
        kafka-consumer-groups @ --describe --group none
        kafka-consumer-groups @ --delete-offsets --group app --topic secured
        kafka-groups @ --list
        kafka-consumer-groups @ --delete --group app
        kafka-share-groups @ --list
        kafka-share-groups @ --describe --group none
        kafka-share-groups @ --delete --group none
        kafka-streams-groups @ --list
        kafka-streams-groups @ --describe --group none
        kafka-streams-groups @ --delete --group none
    """,
    "partitions": """
        kafka-leader-election @ --election-type preferred --topic secured --partition 0
        kafka-leader-election @ --election-type unclean --topic secured --partition 0
        kafka-leader-election @ --election-type preferred --all-topic-partitions
        kafka-reassign-partitions @ --reassignment-json-file {dir}/plan.json --execute
        kafka-reassign-partitions @ --reassignment-json-file {dir}/plan.json --verify
        kafka-reassign-partitions @ --reassignment-json-file {dir}/plan.json --cancel
        kafka-reassign-partitions @ --topics-to-move-json-file {dir}/topics.json --broker-list 1 --generate
        kafka-reassign-partitions @ --list
        kafka-get-offsets @ --topic secured
        kafka-get-offsets @ --topic secured --time -2
        kafka-delete-records @ --offset-json-file {dir}/offsets.json
        kafka-log-dirs @ --describe --topic-list secured
        kafka-log-dirs @ --describe --broker-list 7
    """,
    "cluster": """
        kafka-features @ describe
        kafka-features @ upgrade --feature share.version=1 --dry-run
        kafka-features @ downgrade --feature streams.version=0 --dry-run
        kafka-metadata-quorum @ describe --status
        kafka-metadata-quorum @ describe --replication
        kafka-metadata-quorum @ remove-controller --controller-id 9 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ
        kafka-cluster cluster-id @
        kafka-cluster list-endpoints @
        kafka-cluster unregister @ --id 77
        kafka-broker-api-versions @
    """,
    "kafka-transactions": """
        kafka-transactions @ list
        kafka-transactions @ describe --transactional-id x
        kafka-transactions @ describe-producers --topic secured --partition 0
        kafka-transactions @ find-hanging --topic secured
        kafka-transactions @ abort --topic secured --partition 0 --start-offset 0
        kafka-transactions @ force-terminate --transactional-id x
    """,
    "records": """
        kafka-console-producer @ --topic secured
        kafka-console-consumer @ --topic secured --group reading --from-beginning --max-messages 1 --timeout-ms 20000
        kafka-console-share-consumer @ --topic secured --group sharing --max-messages 1 --timeout-ms 1000
        kafka-streams-application-reset @ --application-id none --input-topics secured --force
    """,
}
_CALLERS = ("bob", "admin")
_OF_THIS_RUN = (
    # In some denials Apache shows its own request object.
    (re.compile(r"Request Request\(.*"), "Cluster authorization failed."),
    (re.compile(r"(?<=127\.0\.0\.1[: ])\d+"), "{port}"),
    (re.compile(r"[\w+/]{86}=="), "{hmac}"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d"), "{moment}"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "{id}"),
    (re.compile(r" +"), " "),
    (re.compile(r"(?<=Epoch: )\d+|(?<=HighWatermark: )\d+|(?<={id}\t)\d+"), "{offset}"),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SecuredServer]]:
    directory = tmp_path_factory.mktemp("secured")
    with started(directory, make_files(tmp_path_factory.mktemp("certificates")), lambda server: True) as found:
        yield found


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


class Place:
    """A server, and how callers come in there. Whoever makes it closes it."""

    def __init__(self, server: SecuredServer, directory: Path) -> None:
        self.server, self.directory = server, directory
        self.admin = Admin(server.client("admin"))
        directory.mkdir()
        for user in _CALLERS:
            login = jaas("plain.PlainLoginModule", {"username": user, "password": USERS[user]})
            (directory / f"{user}.properties").write_text(
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
                f"ssl.truststore.location={server.files / 'ca.pem'}\nsasl.jaas.config={login}\n"
            )
        (directory / "plan.json").write_text(
            '{"version": 1, "partitions": [{"topic": "secured", "partition": 0, "replicas": [1]}]}'
        )
        (directory / "topics.json").write_text('{"version": 1, "topics": [{"topic": "secured"}]}')
        (directory / "offsets.json").write_text(
            '{"version": 1, "partitions": [{"topic": "secured", "partition": 0, "offset": 0}]}'
        )

    def answer(self, tools: ApacheTools, line: str, user: str) -> list[str]:
        """What the tool says, in lines: their order, ids, moments and places of this run do not count."""
        address = f"127.0.0.1:{self.server.ports['SASL_SSL']}"
        tool, *words = shlex.split(line.replace("{dir}", str(self.directory)))
        how = ["--bootstrap-server", address, _option(tool), str(self.directory / f"{user}.properties")]
        given = [part for word in words for part in (how if word == "@" else [word])]
        said = answer(tools(tool, *given, typed="one\n"), address, {"{dir}": str(self.directory)})
        text = "\n".join(said).replace(str(self.server.directory), "{server}")
        for pattern, placeholder in _OF_THIS_RUN:
            text = pattern.sub(placeholder, text)
        return sorted(text.splitlines())

    def settle(self, name: str) -> None:
        """Wait until the broker has applied what its controller wrote so far (see `Side.settle`)."""
        for topic in (f"settled-{name}-1", f"settled-{name}-2"):
            self.admin.create_topics([NewTopic(topic)]).check()
            eventually(partial(self._has, topic))

    def _has(self, topic: str) -> bool:
        return topic in {each.name for each in self.admin.list_topics()}


def _option(tool: str) -> str:
    return {"kafka-streams-application-reset": "--config-file"}.get(tool, "--command-config")


@pytest.mark.parametrize("name", SCENES)
def test_a_tool_may_and_may_not_do_the_same(
    both: list[SecuredServer], tools: ApacheTools, tmp_path: Path, name: str
) -> None:
    places = [Place(server, tmp_path / server.name) for server in both]
    wrong: list[str] = []
    for number, line in enumerate(SCENES[name].strip().splitlines()):
        for user in _CALLERS:
            theirs, ours = (place.answer(tools, line.strip(), user) for place in places)
            if theirs != ours:
                wrong += [f"{user}: {line.strip()}", *ndiff(theirs, ours), ""]
        for place in places:
            # The next line finds what this one changed.
            place.settle(f"{name}-{number}")
    for place in places:
        place.admin.close()
    assert not wrong, "Apache Kafka (-), Ottla (+)\n" + "\n".join(wrong)
