"""franz-go's tests of its client, from its Go module.

They are one program: it makes its own topics and groups, runs its tests side by side, and reads where the broker is and
how many records to write from the environment. Some read the module's sources: it runs in their directory.
"""

from tests.interop import toolchain
from tests.interop.suite import go_program
from tests.interop.suite.outcome import LEAST, Report, expected_of, judged

#: franz-go's own default is 500,000, which is more than a node in Python does in the program's five minutes.
RECORDS_LONG = 100_000
RECORDS_SHORT = 5_000

#: What franz-go's own continuous integration sets at its broker, beside defaults.
BROKER_SETTINGS = {"group.share.delivery.count.limit": "10", "share.coordinator.state.topic.num.partitions": "5"}


def run(bootstrap: str, records: int) -> Report:
    """Run all tests."""
    program, directory = toolchain.kgo_tests()
    settings = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
        "KGO_TEST_UNSAFE": "1",
        "KGO_LOG_LEVEL": "none",
    }
    outcomes = go_program.run(program, directory, settings, ".")
    return judged(
        "kgo",
        outcomes,
        expected_of("kgo"),
        lambda one: go_program.alone(program, directory, settings, one),
        least=LEAST["kgo"],
    )
