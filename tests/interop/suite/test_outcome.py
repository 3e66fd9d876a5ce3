"""What the foreign suites print is understood, and nothing that did not pass goes unnoticed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.suite import __main__ as runner
from tests.interop.suite import go_program, librdkafka, pytest_program
from tests.interop.suite.outcome import (
    APACHE_TOO,
    EXPECTED,
    FAILED,
    LEAST,
    PASSED,
    SKIPPED,
    Expectation,
    Outcome,
    Report,
    cited_of,
    expectations,
    expected_of,
    judged,
)

GO = """\
=== RUN   TestGood
--- PASS: TestGood (0.01s)
=== RUN   TestGroup
=== RUN   TestGroup/range
    group_test.go:12: saw double offset
--- FAIL: TestGroup (1.50s)
    --- FAIL: TestGroup/range (1.25s)
--- SKIP: TestShare (0.00s)
    share_test.go:7: not served
FAIL
"""


def test_the_output_of_go_tells_each_test_and_subtest() -> None:
    found = go_program.parse(GO)
    assert [(one.name, one.state, one.seconds) for one in found] == [
        ("TestGood", PASSED, 0.01),
        ("TestGroup", FAILED, 1.5),
        ("TestGroup/range", FAILED, 1.25),
        ("TestShare", SKIPPED, 0.0),
    ]
    assert found[1].said == "group_test.go:12: saw double offset"
    assert found[3].said == "share_test.go:7: not served"


def test_a_test_that_is_not_listed_must_pass() -> None:
    outcomes = [Outcome("a", PASSED, 1), Outcome("b", FAILED, 1), Outcome("c", SKIPPED, 1)]
    assert [one.name for one in Report("s", outcomes, {}).surprises] == ["b", "c"]


def test_a_test_that_is_listed_as_skipped_may_not_fail() -> None:
    expected = {"a": Expectation(SKIPPED, "r"), "b": Expectation(FAILED, "r")}
    report = Report("s", [Outcome("a", FAILED, 1), Outcome("b", FAILED, 1)], expected)
    assert [one.name for one in report.surprises] == ["a"]


def test_a_listed_test_that_passes_is_told_and_fails_nothing() -> None:
    report = Report("s", [Outcome("a", PASSED, 1)], {"a": Expectation(FAILED, "r")})
    assert report.surprises == []
    assert report.needless == ["a"]
    assert "passed, though listed: a" in report.text()


def test_a_surprise_runs_once_more_and_both_ends_are_told() -> None:
    asked: list[str] = []

    def again(one: Outcome) -> Outcome:
        asked.append(one.name)
        return replace(one, state=PASSED if one.name == "slow" else FAILED)

    outcomes = [Outcome("good", PASSED, 1), Outcome("slow", FAILED, 1, "late"), Outcome("bad", FAILED, 1, "wrong")]
    report = judged("s", outcomes, {}, again)
    assert asked == ["slow", "bad"]
    assert [one.name for one in report.surprises] == ["bad"]
    assert "passed when it ran alone: slow: late" in report.text()


def test_a_test_that_measures_time_must_pass_and_the_table_says_what_it_is_about() -> None:
    expected = expectations("a times it counts milliseconds\nb times it counts seconds")
    report = Report("kgo", [Outcome("a", FAILED, 1, "12 > 10"), Outcome("b", PASSED, 1)], expected)
    assert [one.name for one in report.surprises] == ["a"]
    assert report.needless == []
    assert "- kgo: a failed: it counts milliseconds: 12 > 10" in runner.table([report])


@pytest.mark.parametrize("line", ["a", "a fails", "a passes why", "a fails why\na skips why"])
def test_a_list_with_a_line_that_says_too_little_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not `NAME|listed twice"):
        expectations(line)


def test_the_lists_of_the_tree_are_well_formed() -> None:
    for path in EXPECTED.glob("*.txt"):
        expected_of(path.stem)


def test_what_is_said_of_apache_kafka_has_a_result_that_shows_it() -> None:
    """`python -m tests.interop.suite --cited` renews them."""
    said = {name for path in EXPECTED.glob("*.txt") for name in cited_of(path.stem)}
    shown = {one.name for report in runner.kept("apache") for one in report.outcomes if one.state == FAILED and one.of}
    assert said
    assert said <= shown
    elsewhere = [
        f"{path.name}: {name}"
        for path in EXPECTED.glob("*.txt")
        for name, known in expectations(path.read_text()).items()
        if "Apache Kafka 4.3.1" in known.reason and not known.reason.endswith(APACHE_TOO)
    ]
    assert elsewhere == [], "what is said in other words is not looked up"


def test_a_protocol_has_a_list_of_its_own_beside_that_of_the_suite() -> None:
    classic, consumer = expected_of("librdkafka (classic)"), expected_of("librdkafka (consumer, noautocreate)")
    assert classic.items() < consumer.items()
    assert "0045_resubscribe_with_regex" in consumer.keys() - classic.keys()


RDKAFKA = """\
[0045_subscribe_update       / 21.216s] ================= Test 0045_subscribe_update PASSED =================
### Test "0045_resubscribe_with_regex (do_test:704: Regex)" failed at a.c:97:await() at Sat Nov 21 14:48:09 2026: ###
expected assignment of 2 partitions, got 10
### Test "<MAIN>" failed at test.c:1950:test_wait_exit() at Sat Nov 21 14:50:18 2026: ###
8 thread(s) still active in librdkafka
"""


def test_a_number_that_ends_without_a_summary_tells_which_of_its_tests_failed() -> None:
    assert librdkafka.parse("0045", RDKAFKA, 40.0) == [
        Outcome("0045_subscribe_update", PASSED, 21.216),
        Outcome("0045_resubscribe_with_regex", FAILED, 40.0, "expected assignment of 2 partitions, got 10"),
    ]


JUNIT = """\
<testsuites><testsuite>
<testcase classname="tests.integration.admin.test_scram" name="test_it[a b]" time="1.5" />
<testcase classname="tests.integration.admin.test_scram" name="test_torn" time="1">
<failure message="late">at</failure></testcase>
<testcase classname="tests.integration.admin.test_scram" name="test_torn" time="2">
<error message="not
 there">at</error></testcase>
<testcase classname="tests.integration.consumer.test_a" name="test_out" time="0">
<skipped message="needs more" /></testcase>
<testcase classname="tests.integration.test_ssl.TestOne" name="test_in" time="3" />
</testsuite></testsuites>
"""


def test_the_report_of_pytest_tells_each_test_once() -> None:
    assert pytest_program.parse(JUNIT, "tests/integration/") == [
        Outcome("admin/test_scram.py::test_it[a_b]", PASSED, 1.5),
        Outcome("admin/test_scram.py::test_torn", FAILED, 2, "not there"),
        Outcome("consumer/test_a.py::test_out", SKIPPED, 0, "needs more"),
        Outcome("test_ssl.py::TestOne::test_in", PASSED, 3),
    ]


def test_some_numbers_take_the_place_of_what_came_of_them_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    suite = "librdkafka (classic)"
    whole = [Outcome("0001_a", PASSED, 1), Outcome("0045_b", FAILED, 1), Outcome("0113_c", FAILED, 1)]
    runner.keep(Report(suite, whole, {}), of="one")
    runner.keep(
        Report(suite, [Outcome("0045_d", PASSED, 2, f"of {Path(__file__)}", again=True)], {}), ["0045"], of="two"
    )
    runner.keep(Report(suite, whole[:1], {}), server="apache", of="4.3.1")
    (ours,) = runner.kept()
    assert [(one.name, one.of) for one in ours.outcomes] == [("0001_a", "one"), ("0045_d", "two"), ("0113_c", "one")]
    shown = runner.table([ours])
    assert f"| {suite} | {runner.release(suite)} | one, two | 2 | 1 | 1 | 0 | 110 | 4 |" in shown
    others = [each for each in sorted(LEAST) if each != suite]
    assert f"Without a run whose commit is known: {', '.join(others)}." in shown
    assert "Without a run" not in runner.table([replace(ours, suite=each) for each in LEAST])
    assert "- librdkafka (classic): 0045_d: of tests/interop/suite/test_outcome.py" in shown
    assert [one.of for one in runner.kept("apache")[0].outcomes] == ["4.3.1"]


def test_a_program_that_does_not_start_is_no_success() -> None:
    (outcome,) = librdkafka.parse("0001", "error while loading shared libraries", 0.1)
    assert (outcome.name, outcome.state) == ("0001", FAILED)
    assert "loading shared libraries" in outcome.said


def test_a_go_program_without_tests_is_no_success(tmp_path: Path) -> None:
    program = tmp_path / "kgo.test"
    program.write_text("#!/bin/sh\necho 'testing: warning: no tests to run'\necho PASS\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="no tests to run"):
        go_program.run(program, tmp_path, {}, ".")


def test_a_suite_with_too_few_outcomes_fails() -> None:
    few = judged("kgo", [Outcome("a", PASSED, 1)], {}, lambda one: one, least=LEAST["kgo"])
    assert [(one.name, one.state) for one in few.surprises] == [("the-whole-suite", FAILED)]
    assert "1 tests told how they ended, expected at least 450" in few.text()
    assert judged("kgo", [], {}, lambda one: one).surprises


def test_every_suite_has_a_least_number_and_a_release() -> None:
    for suite in LEAST:
        assert runner.release(suite)


def test_a_listed_test_that_is_gone_is_told() -> None:
    expected = {"a": Expectation(FAILED, "r"), "b": Expectation(FAILED, "r")}
    assert Report("s", [Outcome("a", FAILED, 1)], expected).vanished == ["b"]
