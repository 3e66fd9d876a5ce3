"""`make deploy`: the files for operators, judged by other programs. Needs `ottla[deploy]`, kubectl and systemd.

- hadolint reads the Dockerfile.
- kubernetes-validate holds what `kubectl kustomize` makes of the manifests against the schemas of the newest Kubernetes
  that it has, with unknown fields refused. It does not see what only a cluster checks: quotas, admission, images.
- systemd-analyze verifies the unit, whose program is this environment's, and rates what is left open by it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGING = Path(__file__).parents[2] / "packaging"
#: In tenths, as systemd-analyze rates: 100 is open, 0 closed.
_EXPOSURE_MAX = 25


def _run(*command: str | Path) -> bool:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    print(f"{'ok' if done.returncode == 0 else 'FAILED'}: {' '.join(map(str, command))}")
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:])
    return done.returncode == 0


def main() -> int:
    """Exit code 1 when a program refuses a file, or is not there."""
    beside = Path(sys.executable).parent
    missing = [each for each in ("kubectl", "systemd-analyze") if shutil.which(each) is None]
    missing += [each for each in ("hadolint", "kubernetes-validate") if not (beside / each).exists()]
    if missing:
        print(f"not there: {', '.join(missing)}")
        return 1
    with tempfile.TemporaryDirectory() as directory:
        manifests, unit = Path(directory, "manifests.yaml"), Path(directory, "ottla.service")
        made = subprocess.run(
            ["kubectl", "kustomize", str(PACKAGING / "kubernetes")], capture_output=True, timeout=60, check=True
        )
        manifests.write_bytes(made.stdout)
        text = (PACKAGING / "systemd" / "ottla.service").read_text()
        unit.write_text(text.replace("/opt/ottla/bin", str(beside)))
        passed = [
            _run(beside / "hadolint", PACKAGING / "docker" / "Dockerfile"),
            _run(beside / "kubernetes-validate", "--strict", manifests),
            _run("systemd-analyze", "verify", unit),
            _run("systemd-analyze", "security", "--offline=true", f"--threshold={_EXPOSURE_MAX}", unit),
        ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
