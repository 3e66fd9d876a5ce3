"""`aiokafka_node KIND ENVIRONMENT CERTIFICATES`: what the image of aiokafka's tests starts, a node with the listeners
whose ports the container's environment (JSON) names. It is formatted in a new directory, and runs until it is stopped.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop import server as servers
from tests.interop.secured import jaas
from tests.interop.server import SINGLE_NODE
from tests.interop.suite.process import pass_on_sigterm

#: The ports of the listeners.
_PORTS = {
    "PLAINTEXT": "ADVERTISED_PORT",
    "SSL": "ADVERTISED_SSL_PORT",
    "SASL_PLAINTEXT": "ADVERTISED_SASL_PLAINTEXT_PORT",
    "SASL_SSL": "ADVERTISED_SASL_SSL_PORT",
}
_USERS = ("admin", "test", "test2")
#: Of the stores that the tests' script makes.
_PASSWORD = "abcdefgh"


def main() -> int:
    kind, told, certificates = sys.argv[1:]
    directory = Path(tempfile.mkdtemp(prefix="ottla-aiokafka-"))
    try:
        file = directory / "server.properties"
        settings = properties(json.loads(told), Path(certificates), directory / "data")
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        chosen = servers.kind(kind)
        subprocess.run(chosen.format_command(file), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        process = subprocess.Popen(chosen.start_command(file), stdin=subprocess.DEVNULL)
        pass_on_sigterm(process)
        return process.wait()
    finally:
        shutil.rmtree(directory)


def properties(told: Mapping[str, Any], certificates: Path, data: Path) -> dict[str, str]:
    """The settings of the image, as far as a server of today has them."""
    host = told["ADVERTISED_HOST"]
    listeners = ",".join(f"{name}://{host}:{told[port]}" for name, port in _PORTS.items())
    (controller,) = servers.free_ports(1)
    users = {"username": "admin", "password": "admin", **{f"user_{each}": each for each in _USERS}}
    found = {
        **SINGLE_NODE,
        "controller.quorum.bootstrap.servers": f"{host}:{controller}",
        "listeners": f"{listeners},CONTROLLER://{host}:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in _PORTS) + ",CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "num.partitions": str(told["NUM_PARTITIONS"]),
        "group.initial.rebalance.delay.ms": "0",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificates / "br_server.keystore.jks"),
        "ssl.keystore.password": _PASSWORD,
        "ssl.key.password": _PASSWORD,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(certificates / "br_server.truststore.jks"),
        "ssl.truststore.password": _PASSWORD,
        "ssl.client.auth": "required",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        found[f"listener.name.{listener}.plain.sasl.jaas.config"] = jaas("plain.PlainLoginModule", users)
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = jaas("scram.ScramLoginModule", {})
    return found


if __name__ == "__main__":
    sys.exit(main())
