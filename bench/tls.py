"""Producing and consuming under TLS beside Apache Kafka: `python -m bench.tls [--rounds 5] [--records 100000]`.

librdkafka with its default settings writes records of 1 KiB to a topic with one partition, and reads them back, over
an SSL listener and over a PLAINTEXT listener of each node. Ottla and Apache Kafka take turns; the other node is
stopped meanwhile. Certificates are P-256. The table goes to bench/results/tls.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

from bench import RESULTS, ROOT
from bench.handshakes import SecuredServer, paused, secured_nodes
from tests.interop import server as servers

_RESULT = RESULTS / "tls.md"
_BYTES = 1024
_HEAD = f"""# TLS

Written by `python -m bench.tls`, which says how it measures. MiB/s of librdkafka, records of 1 KiB; medians of the
rounds and of the rounds' ratios. {os.cpu_count()} cores, shared by node and client.

| work | listener | ottla | apache | ratio |
|---|---|---|---|---|
"""


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="bench.tls", description="TLS beside Apache Kafka.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    rates: dict[tuple[str, str], dict[str, list[float]]] = {}
    with secured_nodes(servers.SINGLE_NODE) as nodes:
        for number in range(-1, options.rounds):
            for node, other in (nodes, nodes[::-1]):
                with paused(other, really=True):
                    for listener in ("SSL", "PLAINTEXT"):
                        for work, rate in _measure(node, listener, number, options.records).items():
                            if number >= 0:  # The first round warms up.
                                rates.setdefault((work, listener), {}).setdefault(node.name, []).append(rate)
    rows = []
    for (work, listener), found in rates.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(found["ottla"], found["apache"], strict=True))
        ours, theirs = (statistics.median(found[name]) for name in ("ottla", "apache"))
        rows.append(f"| {work} | {listener} | {ours:.0f} | {theirs:.0f} | {ratio:.2f}x |\n")
    _RESULT.write_text(_HEAD + "".join(rows))
    print(_RESULT.read_text())
    return 0


def _measure(node: SecuredServer, listener: str, number: int, records: int) -> dict[str, float]:
    """MiB/s of producing and of consuming."""
    port = node.ssl_port if listener == "SSL" else node.port
    topic = f"{listener.lower()}{number}"
    secured = {"security.protocol": "SSL", "ssl.ca.location": str(node.ca)} if listener == "SSL" else {}
    found = {}
    for work, size in (("produce", (str(_BYTES),)), ("consume", ())):
        words = (work, f"127.0.0.1:{port}", topic, str(records), *size, json.dumps(secured))
        command = [sys.executable, "-m", "bench.librdkafka", *words]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
        found[work] = json.loads(said)["records_per_s"] * _BYTES / (1 << 20)
    return found


if __name__ == "__main__":
    sys.exit(main())
