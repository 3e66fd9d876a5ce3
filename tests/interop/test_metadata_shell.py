"""kafka-metadata-shell: ours and Apache's show the same tree of the same metadata log."""

from pathlib import Path

import pytest

from tests.cli.kafka_tool import kafka
from tests.cli.metadata_log import write
from tests.cli.tool import Said
from tests.interop.apache_tool import ApacheTools

pytestmark = pytest.mark.interop

_ATTEMPTS_MAX = 20


def _loaded(tools: ApacheTools, *words: str) -> Said:
    """What Apache's says. It may run a command before it has applied what it read: then it shows an empty tree."""
    said = Said(0, "", "")
    for _ in range(_ATTEMPTS_MAX):
        said = tools("kafka-metadata-shell", *words)
        if "offset -1, epoch -1" not in said.out:
            return said
    raise AssertionError(f"Apache's shell never showed what it read: {said}")


def test_both_show_the_same_tree(tmp_path: Path) -> None:
    words = ("--snapshot", str(write(tmp_path)), "tree", "/")
    with ApacheTools() as tools:
        theirs = _loaded(tools, *words)
    ours = kafka("kafka-metadata-shell", *words)
    assert (theirs.code, ours.code) == (0, 0)
    assert _without_commit(ours.out) == _without_commit(theirs.out)


def _without_commit(out: str) -> list[str]:
    """The commit is that of the tool."""
    lines = out.splitlines()
    del lines[lines.index("  commitId:") + 1]
    return lines
