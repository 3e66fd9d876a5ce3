"""One node for all tests of the tools, and a tool that asks it."""

from collections.abc import Iterator

import pytest

import ottla
from tests.cli.tool import Tool
from tests.interop.server import KEPT


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with ottla.Node(settings=KEPT) as node:
        yield node.bootstrap_servers


@pytest.fixture
def tool(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tool:
    return Tool(bootstrap, monkeypatch, capfd)


@pytest.fixture
def topic(tool: Tool, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions that only this test knows."""
    name = "".join(each if each.isalnum() else "_" for each in request.node.name.removeprefix("test_"))[:80]
    assert tool("topics", "create", name, "-p", "2").code == 0
    return name
