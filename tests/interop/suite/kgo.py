"""franz-go's tests of its client, from its Go module.

They are one program: it makes its own topics and groups, runs its tests side by side, and reads where the broker is and
how many records to write from the environment. Some read the module's sources: it runs in their directory.
"""

from collections.abc import Mapping

from tests.interop import toolchain
from tests.interop.suite import go_program
from tests.interop.suite.outcome import LEAST, Report, expected_of, judged

#: franz-go's own default is 500,000, which is more than a node in Python does in the program's five minutes.
RECORDS_LONG = 100_000
RECORDS_SHORT = 5_000

#: What franz-go's own continuous integration sets at its broker, beside defaults.
BROKER_SETTINGS = {"group.share.delivery.count.limit": "10", "share.coordinator.state.topic.num.partitions": "5"}

#: It dials by itself, and franz-go's client refuses that together with TLS: the whole program would end.
NOT_WITH_TLS = "^TestIssue769$"


def run(bootstrap: str, records: int, *, secured: Mapping[str, str] | None = None, pattern: str = ".") -> Report:
    """Run all tests, or those of a pattern; `secured`: by which settings they use TLS and SCRAM."""
    suite = "kgo" if secured is None else "kgo_secured"
    program, directory = toolchain.kgo_tests()
    settings = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
        "KGO_TEST_UNSAFE": "1",
        "KGO_LOG_LEVEL": "none",
        **(secured or {}),
    }
    without = "^$" if secured is None else NOT_WITH_TLS
    outcomes = go_program.run(program, directory, settings, pattern, without=without)
    return judged(
        suite,
        outcomes,
        expected_of(suite),
        lambda one: go_program.alone(program, directory, settings, one),
        least=LEAST[suite] if pattern == "." else 1,
    )
