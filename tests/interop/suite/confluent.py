"""confluent-kafka-python's integration tests, from its repository, with the client of the same release.

They take any cluster that BROKERS names. Left out are the tests of the schema registry, which say nothing of the node.
There is one run for each protocol of groups; what is the same in both runs once. Another run has TLS and SASL, for the
tests that start a cluster of their own with SASL and for others: `plugin/` hands them a node's listeners.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.interop import toolchain
from tests.interop.suite import librdkafka, pytest_program
from tests.interop.suite.outcome import LEAST, Outcome, Report, expected_of, judged

#: All tests of one protocol.
TIMEOUT_S = 2400
_BELOW = "tests/integration/"
#: What their own cluster is started with, beside one replica of everything. It is for the tests of share groups, and a
#: test of settings with the consumer protocol expects that a group has none.
BROKER_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "classic": {
        **librdkafka.AUTHORIZER_SETTINGS,
        "group.share.record.lock.duration.ms": "1000",
        "group.share.min.record.lock.duration.ms": "1000",
    },
    "consumer": librdkafka.AUTHORIZER_SETTINGS,
}

#: Directories below tests/integration, by the protocol of groups.
_WHERE = {
    "classic": ("admin", "consumer", "producer", "serialization", "share_consumer"),
    "consumer": ("admin", "consumer", "producer"),
}
#: Those that want SASL, and others over SASL_SSL.
SECURED = ("admin", "producer", "consumer", "share_consumer_sasl", "share_consumer_oauth")
_PLUGIN = Path(__file__).resolve().parent / "plugin"


def run_secured(clusters: Mapping[str, Mapping[str, str]], names: Sequence[str] = SECURED) -> Report:
    """Run the tests of these names; `clusters`: the settings of clients by what their fixtures call the cluster."""
    suite = "confluent_secured"

    def ran(arguments: Sequence[str]) -> list[Outcome]:
        return _run(clusters["byo"]["bootstrap.servers"], "classic", arguments, clusters)

    outcomes = ran([f"{_BELOW}{each}" for each in names])
    least = LEAST[suite] if names == SECURED else len(names)
    return judged(suite, outcomes, expected_of(suite), partial(pytest_program.alone, ran, _BELOW), least=least)


def run(bootstrap: str, protocol: str, names: Sequence[str] = ()) -> Report:
    """Run the tests of these names, or all, with groups of the classic or the consumer protocol."""
    suite = f"confluent ({protocol})"
    outcomes = _run(bootstrap, protocol, [f"{_BELOW}{each}" for each in names or _WHERE[protocol]])
    least = len(names) or LEAST[suite]
    again = partial(pytest_program.alone, partial(_run, bootstrap, protocol), _BELOW)
    return judged(suite, outcomes, expected_of(suite), again, least=least)


def _run(
    bootstrap: str, protocol: str, arguments: Sequence[str], clusters: Mapping[str, Mapping[str, str]] | None = None
) -> list[Outcome]:
    python, sources = toolchain.confluent_tests()
    path = str(sources)
    settings = {"BROKERS": bootstrap, "KAFKA_HOME": str(toolchain.kafka_home())}
    if protocol == "consumer":
        settings["TEST_CONSUMER_GROUP_PROTOCOL"] = protocol
    if clusters is None:
        options = ["-k", "not sasl_cluster and not schema_registry"]
    else:
        path += f":{_PLUGIN}"
        settings["CONFLUENT_CLUSTERS"] = json.dumps(clusters)
        options = ["-p", "secured_clusters"]
    return pytest_program.run(
        python, sources, [*options, *arguments], {**settings, "PYTHONPATH": path}, TIMEOUT_S, below=_BELOW
    )
