"""The table of what passes: scenes down, peers across, one table a server. `make interop` writes it to RESULTS.md."""

from pathlib import Path

import pytest

#: scene -> peers -> outcomes
Table = dict[str, dict[str, list[str]]]


class Results:
    """Collects outcomes while the suite runs."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.clients: dict[str, str] = {}
        self._failed: set[str] = set()

    def note(self, item: pytest.Item, report: pytest.TestReport, server: str, kinds: list[str]) -> None:
        # A test that fails while it is set up or taken down has failed as well, and counts once.
        if report.when != "call" and not report.failed:
            return
        if item.nodeid in self._failed:
            return
        if report.failed:
            self._failed.add(item.nodeid)
        name = getattr(item, "originalname", None) or item.name
        scene = name.removeprefix("test_").replace("_", " ")
        row = self.tables.setdefault(server, {}).setdefault(scene, {})
        for kind in kinds or ["-"]:
            row.setdefault(kind, []).append(report.outcome)

    def write(self, path: Path) -> None:
        path.write_text(self.text())

    def text(self) -> str:
        lines = [
            "# What passes",
            "",
            "Written by `make interop LONG=1`. A cell is passed/run; what fails is explained in FINDINGS.md.",
            "",
        ]
        for server, table in self.tables.items():
            peers = sorted({peer for row in table.values() for peer in row if peer != "-"})
            if any("-" in row for row in table.values()):
                peers.append("-")
            lines += [f"## Against {server}", ""]
            lines.append("| scene | " + " | ".join("no peer" if peer == "-" else peer for peer in peers) + " |")
            lines.append("|---" * (len(peers) + 1) + "|")
            for scene, row in sorted(table.items()):
                cells = [_cell(row.get(peer, [])) for peer in peers]
                lines.append(f"| {scene} | " + " | ".join(cells) + " |")
            lines.append("")
        if self.clients:
            lines += ["## The peers", ""]
            lines += [f"- {name}: {client}" for name, client in sorted(self.clients.items())]
            lines.append("")
        return "\n".join(lines)


def _cell(outcomes: list[str]) -> str:
    if not outcomes:
        return ""
    passed = sum(outcome == "passed" for outcome in outcomes)
    return f"{passed}/{len(outcomes)}" if passed == len(outcomes) else f"**{passed}/{len(outcomes)}**"
