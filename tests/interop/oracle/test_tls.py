"""TLS beside Apache Kafka: the Java client and librdkafka, right and wrong, and the names of certificates' owners."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pytest

from ottla.settings.properties import write
from tests.broker.tls_scene import EXPIRED, signed
from tests.client import certificate
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.apache_tool import ApacheTools
from tests.interop.secured import jaas
from tests.security.test_certificate import MAPPED, SUBJECTS, made

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


class TlsServer(servers.Server):
    """A server with SSL, which wants certificates, and SASL_SSL."""

    files: Path
    ports: dict[str, int]

    def _properties(self, controller_port: int) -> str:
        self.ports = dict(zip(("SSL", "SASL_SSL"), servers.free_ports(2), strict=True))
        where = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in where.items())
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in where) + ",CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas("plain.PlainLoginModule", {"user_ann": "anns"}),
        }
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    certificate.make(directory)
    signed(directory, "late", days=EXPIRED)
    signed(directory, "unknown", ca="stranger")
    return directory


@pytest.fixture(scope="module")
def both(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TlsServer]]:
    directory = tmp_path_factory.mktemp("tls")
    found = [TlsServer(kind, directory / kind.name, servers.HELD) for kind in (servers.apache(), servers.ottla())]
    try:
        for server in found:
            server.files = files
            server.start()
        yield found
    finally:
        for server in found:
            server.stop()


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as tools:
        yield tools


#: Scene -> listener, host, the CA that the client trusts, its certificate, its password.
SCENES: Mapping[str, tuple[str, str, str, str, str]] = {
    "right certificate": ("SSL", "127.0.0.1", "ca", "client", ""),
    "right password": ("SASL_SSL", "127.0.0.1", "ca", "", "anns"),
    "no certificate": ("SSL", "127.0.0.1", "ca", "", ""),
    "expired certificate": ("SSL", "127.0.0.1", "ca", "late", ""),
    "certificate of another CA": ("SSL", "127.0.0.1", "ca", "unknown", ""),
    "wrong password": ("SASL_SSL", "127.0.0.1", "ca", "", "guessed"),
    "broker of another CA": ("SASL_SSL", "127.0.0.1", "stranger", "", "anns"),
    "wrong host": ("SASL_SSL", "localhost", "ca", "", "anns"),
}
_RIGHT = {"right certificate", "right password"}


def java_settings(files: Path, scene: str) -> dict[str, str]:
    listener, _, ca, own, password = SCENES[scene]
    found = {"security.protocol": listener, "ssl.truststore.type": "PEM"}
    found["ssl.truststore.location"] = str(files / f"{ca}.pem")
    if own:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files / f"{own}.pem")}
    if password:
        line = jaas("plain.PlainLoginModule", {"username": "ann", "password": password})
        found |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
    return found


#: What the Java client says -> what went wrong. In TLS 1.3 the server checks a certificate when the client is through.
_REFUSALS = {
    "SSL handshake failed": "TLS",
    "Failed to process post-handshake messages": "TLS",
    "Authentication failed: Invalid username or password": "SASL",
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_java_client_meets_the_same(
    both: list[TlsServer], tools: ApacheTools, files: Path, tmp_path: Path, scene: str
) -> None:
    (tmp_path / "client.properties").write_text(write(java_settings(files, scene)))
    listener, host, *_ = SCENES[scene]
    topic = f"java-{uuid.uuid4().hex[:8]}"
    said = []
    for server in both:
        at = ("--bootstrap-server", f"{host}:{server.ports[listener]}")
        config = ("--command-config", str(tmp_path / "client.properties"))
        made = tools("kafka-topics", *at, *config, "--create", "--topic", topic)
        words = made.out + made.err
        kind = next((kind for text, kind in _REFUSALS.items() if text in words), "")
        said.append((made.code, kind))
        if scene in _RIGHT:
            assert made.code == 0, words
            sent = tools("kafka-console-producer", *at, *config, "--topic", topic, typed="one\ntwo\n")
            assert sent.code == 0, sent.err
            count = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
            read = tools("kafka-console-consumer", *at, *config, "--topic", topic, *count)
            assert read.out == "one\ntwo\n", read.err
        else:
            assert kind, words
    assert said[0] == said[1]


def librdkafka_settings(files: Path, scene: str, port: int) -> dict[str, object]:
    listener, host, ca, own, password = SCENES[scene]
    found: dict[str, object] = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": listener,
        "ssl.ca.location": str(files / f"{ca}.pem"),
        "broker.address.family": "v4",
        "log_level": 0,
    }
    if own:
        found |= {"ssl.certificate.location": str(files / f"{own}.crt"), "ssl.key.location": str(files / f"{own}.key")}
    if password:
        found |= {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": password}
    return found


def _code(error: confluent_kafka.KafkaError) -> int:
    """The code of an error. librdkafka tells a handshake that fails in its first step as a transport error."""
    ssl: int = confluent_kafka.KafkaError._SSL
    return ssl if "SSL routines" in error.str() else error.code()


@pytest.mark.parametrize("scene", SCENES)
def test_librdkafka_meets_the_same(both: list[TlsServer], files: Path, scene: str) -> None:
    said = []
    for server in both:
        errors: list[int] = []
        settings = librdkafka_settings(files, scene, server.ports[SCENES[scene][0]])
        client = confluent_kafka.Producer({**settings, "error_cb": lambda error, to=errors: to.append(_code(error))})
        if scene in _RIGHT:
            topic = f"librdkafka-{uuid.uuid4().hex[:8]}"
            client.produce(topic, b"v")
            assert client.flush(60) == 0
            consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
            consumer.subscribe([topic])
            message = consumer.poll(60)
            assert message is not None and message.error() is None and message.value() == b"v"
            consumer.close()
            said.append(0)
        else:
            while not errors or errors[0] == confluent_kafka.KafkaError._ALL_BROKERS_DOWN:
                errors[:] = [each for each in errors if each != confluent_kafka.KafkaError._ALL_BROKERS_DOWN]
                client.poll(1)
            said.append(errors[0])
    assert said[0] == said[1]


def test_owners_and_rules_are_those_of_java(tmp_path: Path) -> None:
    """X500Principal's names, and SslPrincipalMapper's users."""
    (tmp_path / "Names.java").write_text(_NAMES)
    words: list[str] = []
    for number, subject in enumerate(SUBJECTS):
        path = tmp_path / f"{number}.der"
        path.write_bytes(made(tmp_path, subject))
        words.append(str(path))
    for rules, name, _ in MAPPED:
        words += [rules, name]
    command = ["java", "-cp", toolchain.classpath(), str(tmp_path / "Names.java"), str(len(SUBJECTS)), *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*SUBJECTS.values(), *(user for _, _, user in MAPPED)]


_NAMES = """
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Names {
    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        int count = Integer.parseInt(words[0]);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (int i = 1; i <= count; i++) {
            X509Certificate one = (X509Certificate) factory.generateCertificate(new FileInputStream(words[i]));
            out.println(one.getSubjectX500Principal().getName());
        }
        for (int i = count + 1; i < words.length; i += 2) {
            out.println(SslPrincipalMapper.fromRules(words[i]).getName(words[i + 1]));
        }
    }
}
"""
