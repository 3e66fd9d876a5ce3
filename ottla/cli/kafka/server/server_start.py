"""kafka-server-start: run the node that a server.properties describes, in the foreground or the background (-daemon).

Rules:
- The first argument is the file (or -daemon, then the file); after it, only `--override name=value` is allowed.
- A daemon is one process in its own session; its output goes to $LOG_DIR/kafkaServer.out (default: ./logs). Its
  settings are checked before it is started, so that the caller sees an error in the file.
- Besides our own lines, it prints the two lines of Apache's log that test harnesses wait for.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

from ottla.cli.kafka.program.option import Given, Option, Refused, Usage, help_text, key_values, parse
from ottla.cli.kafka.program.tool import KAFKA_VERSION, Failed, leave, load, tell
from ottla.host.config_providers import server_settings
from ottla.settings.server.settings import ServerSettings

OPTIONS = (Option("override", "Setting that overrides the file; may be repeated.", "name=value"),)
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
        return _daemonize(words)
    from ottla.broker.serve import run
    from ottla.cli import STARTED_AT

    def say(line: str) -> None:
        print(line, flush=True)
        if " ready on " in line:
            _print_apache_lines(settings)

    return run(settings, say, STARTED_AT)


def properties_of(words: list[str]) -> dict[str, str]:
    """Return the properties of the file with the overrides. Usage or Refused for other arguments."""
    file, *rest = words
    given = _overrides(rest)
    return load(file) | key_values(given.values("override"))


def settings_of(words: list[str]) -> ServerSettings:
    """Return the parsed settings of the file with the overrides. OttlaError names what is wrong."""
    return server_settings(properties_of(words))


def _overrides(words: list[str]) -> Given:
    """Parse the overrides. Usage lists all words that are not options."""
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


def _daemonize(words: list[str]) -> int:
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


def _print_apache_lines(settings: ServerSettings) -> None:
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
