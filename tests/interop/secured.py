"""Servers with a listener of each kind that lets in by name: Apache Kafka and our node from one file."""

from collections.abc import Mapping

from tests.interop import server as servers

JAAS = "org.apache.kafka.common.security"
PASSWORD = 'p,a=s"s'
USERS = {"ann": PASSWORD, "bob": "bobs", "cid": "cids", "admin": "admins"}


def jaas(module: str, options: Mapping[str, str]) -> str:
    """A JAAS line as it stands in a properties file."""
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    line = f"{JAAS}.{module} required " + " ".join(f'{name}="{value}"' for name, value in quoted.items()) + ";"
    return line.replace("\\", "\\\\")


class SaslServer(servers.Server):
    """A server with PLAINTEXT for everyone and SASL_PLAINTEXT for `USERS`."""

    sasl_port: int

    def _properties(self, controller_port: int) -> str:
        (self.sasl_port,) = servers.free_ports(1)
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(
                "plain.PlainLoginModule", {f"user_{user}": password for user, password in USERS.items()}
            ),
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": jaas("scram.ScramLoginModule", {}),
        }
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())

    @property
    def sasl(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"
