"""The short form of each suite: every test of it that is quick must pass, but for those that are known and listed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.interop import server as servers
from tests.interop.server import SINGLE_NODE, Server
from tests.interop.suite import apache, kafka_python, kgo, librdkafka, secured

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]

#: One node serves all suites: they make topics and groups of their own.
SETTINGS: Mapping[str, str] = {**kgo.BROKER_SETTINGS, **librdkafka.BROKER_SETTINGS}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose groups wait as long as Kafka's do, which these suites expect."""
    directory: Path = tmp_path_factory.mktemp("suite")
    node = Server(servers.kind("ottla"), directory, SETTINGS, base=SINGLE_NODE)
    node.start()
    yield node.bootstrap
    node.stop()


def test_the_tests_of_franz_go_pass(bootstrap: str) -> None:
    report = kgo.run(bootstrap, kgo.RECORDS_SHORT)
    assert not report.surprises, report.text()


def test_the_tests_of_librdkafka_pass(bootstrap: str) -> None:
    report = librdkafka.run(bootstrap, "classic", librdkafka.SHORT)
    assert not report.surprises, report.text()


def test_the_tests_of_librdkafka_pass_with_the_consumer_protocol(bootstrap: str) -> None:
    report = librdkafka.run(bootstrap, "consumer", librdkafka.SHORT_CONSUMER)
    assert not report.surprises, report.text()


def test_the_tests_of_kafka_python_pass_with_tls_and_with_each_sign_in() -> None:
    report = kafka_python.run("ottla")
    assert not report.surprises, report.text()


@pytest.mark.parametrize("part", apache.SHORT)
def test_apaches_own_integration_tests_pass_on_nodes_of_ours(part: str) -> None:
    report = apache.run("ottla", part, short=True)
    assert not report.surprises, report.text()


@pytest.fixture(scope="module")
def secured_node() -> Iterator[secured.SecuredServer]:
    with secured.serving("ottla", SETTINGS) as node:
        yield node


def test_the_tests_of_franz_go_pass_with_tls_and_scram(secured_node: secured.SecuredServer) -> None:
    report = kgo.run(
        secured_node.at("SSL"), kgo.RECORDS_SHORT, secured=secured.kgo_settings(secured_node), pattern="SCRAM|Share|Txn"
    )
    assert not report.surprises, report.text()
    assert {"TestSCRAMAuth", "TestSCRAMAuthBadCredentials"} <= {each.name for each in report.outcomes}


def test_the_tests_of_librdkafka_pass_with_tls_and_scram(secured_node: secured.SecuredServer) -> None:
    report = librdkafka.run_secured(secured.librdkafka_brokers(secured_node), librdkafka.SECURED_SHORT)
    assert not report.surprises, report.text()
