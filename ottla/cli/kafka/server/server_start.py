"""kafka-server-start: run the node that a server.properties describes, in the foreground or (-daemon) behind it.

Rules:
- The first word is the file (or -daemon, then the file); after it only `--override name=value`.
- A daemon is one process in a session of its own; what it says goes to $LOG_DIR/kafkaServer.out (./logs without it).
  Its settings are read before it is let go, so that a wrong file is told to who started it.
- Beside our own lines stand the two of Apache's log that harnesses wait for.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

from ottla.cli.kafka.program.option import Given, Option, Refused, Usage, help_text, key_values, parse
from ottla.cli.kafka.program.tool import KAFKA_VERSION, Failed, leave, load, tell
from ottla.settings.server.settings import ServerSettings

OPTIONS = (Option("override", "A setting that goes before the file's; may be repeated.", "name=value"),)
_USAGE = "USAGE: {} [-daemon] server.properties [--override property=value]*"
CONSOLE = "kafkaServer.out"


def main() -> None:
    """The console script."""
    words = sys.argv[1:]
    if not words:
        print(_USAGE.format(sys.argv[0]))
        sys.exit(1)
    daemon = words[0] == "-daemon"
    leave(lambda: _start(words[1:] if daemon else words, daemon=daemon))


def _start(words: list[str], *, daemon: bool) -> int:
    if not words or "--help" in words:
        tell(_USAGE.format("kafka-server-start"), help_text(OPTIONS))
        return 1
    if "--version" in words:
        print(KAFKA_VERSION)
        return 0
    try:
        settings = settings_of(words)
    except (Usage, Refused) as wrong:
        tell(str(wrong), help_text(OPTIONS))
        return 1
    if daemon:
        return _let_go(words)
    from ottla.broker.serve import run
    from ottla.cli import STARTED_AT

    def say(line: str) -> None:
        print(line, flush=True)
        if " ready on " in line:
            _say_as_apache(settings)

    return run(settings, say, STARTED_AT)


def properties_of(words: list[str]) -> dict[str, str]:
    """What file and overrides say together. Usage or Refused for other words."""
    file, *rest = words
    given = _overrides(rest)
    return load(file) | key_values(given.values("override"))


def settings_of(words: list[str]) -> ServerSettings:
    """The same, checked. OttlaError names what is wrong."""
    return ServerSettings.parse(properties_of(words))


def _overrides(words: list[str]) -> Given:
    """Options alone: the first word that is none is refused, with all that are none."""
    alone, left = [], list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            alone.append(word)
        elif word.lstrip("-") == "override" and left:
            left.pop(0)
    given = parse(OPTIONS, words)
    if alone:
        raise Usage(f"Found non argument parameters: {','.join(alone)}")
    return given


def _let_go(words: list[str]) -> int:
    import subprocess

    directory = Path(os.environ.get("LOG_DIR") or "logs")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        out = (directory / CONSOLE).open("wb")
    except OSError as error:
        raise Failed(f"{directory}: {error.strerror}") from error
    with out:
        subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.kafka.server.server_start", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return 0


def _say_as_apache(settings: ServerSettings) -> None:
    now = datetime.now().astimezone()
    at = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
    node = settings.node_id
    if "broker" in settings.process_roles:
        print(
            f"[{at}] INFO [BrokerLifecycleManager id={node}] The broker has been unfenced. Transitioning from RECOVERY "
            "to RUNNING. (kafka.server.BrokerLifecycleManager)"
        )
    print(
        f"[{at}] INFO [KafkaRaftServer nodeId={node}] Kafka Server started (kafka.server.KafkaRaftServer)", flush=True
    )


if __name__ == "__main__":
    main()
