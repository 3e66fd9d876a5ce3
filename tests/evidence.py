"""What long runs have shown, kept in the tree: counts, added up for each commit that they are of."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parent.parent
#: {commit: {what was run: {what was counted: how many}}}
EVIDENCE = _ROOT / "tests" / "crash" / "evidence.json"


def commit() -> str:
    """The commit of the tree, with a + when the product has changes that are not in it."""
    git = ["git", "-C", str(_ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True, check=True).stdout
    changed = subprocess.run([*git, "status", "--porcelain", "--", "ottla"], capture_output=True, text=True, check=True)
    return head.strip() + ("+" if changed.stdout.strip() else "")


def note(what: str, counts: Mapping[str, int], file: Path = EVIDENCE) -> None:
    """Add these counts to those of the same runs at this commit."""
    known: dict[str, dict[str, dict[str, int]]] = json.loads(file.read_text()) if file.exists() else {}
    here = known.setdefault(commit(), {}).setdefault(what, {})
    for name, count in counts.items():
        here[name] = here.get(name, 0) + count
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(known, indent=1) + "\n")
    fresh.replace(file)
