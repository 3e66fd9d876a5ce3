"""kafka-broker-api-versions: the APIs and versions that each broker supports."""

from __future__ import annotations

from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, require
from ottla.cli.kafka.program.tool import admin, admin_of, command

OPTIONS = (BOOTSTRAP, COMMAND_CONFIG)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to retrieve broker version information.", _run)


def _run(given: Given) -> int:
    require(given, "bootstrap-server")
    with admin(given["bootstrap-server"], admin_of(given)) as client:
        nodes = {node.id: node for node in client.describe_cluster().nodes}
        for node_id, versions in client.api_versions().items():
            node = nodes[node_id]
            lines = ",\n\t".join(_lines(versions))
            about = f"(id: {node.id} rack: {node.rack or 'null'} isFenced: false)"
            print(f"{node.host}:{node.port} {about} -> (\n\t{lines}\n)")
    return 0


def _lines(versions: dict[str, tuple[int, int]]) -> list[str]:
    """Return the lines in the order of the API keys, including APIs that the broker does not support."""
    from ottla.wire.api import API, ApiKey

    keys = {"".join(word.capitalize() for word in key.name.split("_")): int(key) for key in ApiKey}
    lines: dict[int, str] = {}
    for name, (low, high) in versions.items():
        if name not in keys:
            lines[int(name.removeprefix("UNKNOWN(").removesuffix(")"))] = f"{name}: {_range(low, high)}"
            continue
        key = keys[name]
        lines[key] = f"{name}({key}): {_range(low, high)}{_usable(key, low, high)}"
    for name, key in keys.items():
        if key not in lines and API[ApiKey(key)].versions and "broker" in API[ApiKey(key)].listeners:
            lines[key] = f"{name}({key}): UNSUPPORTED"
    return [lines[key] for key in sorted(lines)]


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _usable(key: int, low: int, high: int) -> str:
    from ottla.wire.api import API, ApiKey

    own = API[ApiKey(key)].versions
    if own[-1] < low:
        return " [unusable: node too new]"
    return " [unusable: node too old]" if high < own[0] else f" [usable: {min(own[-1], high)}]"
