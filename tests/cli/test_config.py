"""`ottla configs`."""

import pytest

from tests.cli.tool import Tool


def test_what_is_set_is_shown_with_its_source_and_unset_is_the_default_again(tool: Tool, topic: str) -> None:
    assert tool("configs", "set", "topic", topic, "retention.ms=5000", "cleanup.policy=delete").code == 0
    assert ["retention.ms", "5000", "topic"] in tool("configs", "show", "topic", topic).rows
    assert tool("configs", "unset", "topic", topic, "retention.ms", "cleanup.policy").code == 0
    assert "retention.ms" not in tool("configs", "show", "topic", topic).out
    assert ["retention.ms", "604800000", "default"] in tool("configs", "show", "topic", topic, "--all").rows


def test_a_broker_is_named_by_its_number_or_all(tool: Tool) -> None:
    shown = {each["setting"]: each for each in tool("configs", "show", "broker", "1", "--all", "--json").json}
    assert shown["node.id"]["value"] == "1"
    assert shown["node.id"]["read_only"] is True
    assert tool("configs", "set", "broker", "all", "log.retention.ms=777").code == 0
    assert ["log.retention.ms", "777", "all nodes"] in tool("configs", "show", "broker", "1").rows
    assert tool("configs", "unset", "broker", "all", "log.retention.ms").code == 0
    assert tool("configs", "show", "broker", "here").code == 2


@pytest.mark.parametrize("change", ["retention.ms=soon", "retention.mss=1"])
def test_a_change_that_cannot_be_is_one_line(tool: Tool, topic: str, change: str) -> None:
    said = tool("configs", "set", "topic", topic, change)
    assert said.code == 1
    assert "retention.ms" in said.err
    assert said.err.count("\n") == 1


def test_settings_explain_themselves_without_a_cluster(tool: Tool) -> None:
    said = tool("configs", "explain", "retention.ms")
    assert "How long segments are kept" in said.out
    assert "7 d" in said.out
    found = tool("configs", "explain", "compact", "-k", "topic", "--json").json
    assert {"cleanup.policy", "min.compaction.lag.ms"} <= {each["setting"] for each in found}
    assert tool("configs", "explain", "no-such-word").code == 1


def test_own_settings_are_checked_shown_and_explained(tool: Tool) -> None:
    refused = tool("configs", "set", "broker", "1", "slow.request.log.ms=x")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "Invalid value x for configuration slow.request.log.ms: expected 0 to 86400000, or -1" in refused.err
    assert tool("configs", "set", "broker", "1", "slow.request.log.ms=60000").code == 0
    assert ["slow.request.log.ms", "60000", "this node"] in tool("configs", "show", "broker", "1").rows
    assert tool("configs", "unset", "broker", "1", "slow.request.log.ms").code == 0
    assert "slow.request.log.ms" not in tool("configs", "show", "broker", "1").out
    assert "metrics.listener" in tool("configs", "set", "broker", "1", "metrics.listener=127.0.0.1:0").err
    assert "Requests that take at least" in tool("configs", "explain", "slow.request.log.ms").out
