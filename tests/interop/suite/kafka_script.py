"""`kafka_script KIND format ...` and `kafka_script KIND kafka.Kafka FILE`: what kafka-python's tests run as Kafka's
kafka-storage.sh and kafka-run-class.sh.

They wait for two lines of Apache Kafka's log, which this program prints for our node: that the server has started, and
that it knows the user whose password was given when its directory was formatted.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.interop import server as servers
from tests.interop.suite.process import pass_on_sigterm


def main() -> int:
    kind, first, *rest = sys.argv[1:]
    chosen = servers.kind(kind)
    if first == "format":
        command = [*chosen.format[: chosen.format.index("format")], first, *rest]
        os.execvp(command[0], command)
    file = Path(rest[0])
    file.write_text(sign_in(file.read_text()))
    # Apache's log has the first of the lines then.
    command = [part.replace("LogLevel=warn", "LogLevel=info") for part in chosen.start_command(file)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    pass_on_sigterm(process)
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if "ready on" in line or "Kafka Server started" in line:
            print("[KafkaRaftServer nodeId=0] Kafka Server started", flush=True)
            print("Replayed UserScramCredentialRecord creating new entry for alice", flush=True)
    return process.wait()


def sign_in(properties: str) -> str:
    """The properties, with the names of listener and mechanism in small letters, and without an empty sign-in."""
    kept = []
    for line in properties.splitlines():
        found = re.match(r"listener\.name\.(\w+)\.([\w-]+)\.sasl\.jaas\.config=(.*)", line)
        if found is None:
            kept.append(line)
        elif found[3]:
            kept.append(f"listener.name.{found[1].lower()}.{found[2].lower()}.sasl.jaas.config={found[3]}")
    return "\n".join([*kept, ""])


if __name__ == "__main__":
    sys.exit(main())
