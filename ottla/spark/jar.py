"""The jars of Spark's Kafka connector: from the cache, or downloaded once.

PySpark has no Kafka connector, but it has Ivy, the resolver behind `spark.jars.packages`. We run that Ivy for exactly
the five artifacts below, without their dependencies: the poms of some Spark releases name artifacts and repositories
that do not exist. This needs only Java and PySpark, not Maven.

Rules:
- After the first download, `jars()` only reads the cache and needs no network.
- The connector of Spark's own version is used if it exists; otherwise a combination that was tested with this Spark.
- An artifact with a known SHA-256 must match it; for the others Ivy checks the repository's checksum.

The repository is `OTTLA_MAVEN_REPOSITORY` (the address of a Maven repository), otherwise the mirror of Central in
`~/.m2/settings.xml`, otherwise Maven Central, Ivy's default. The resolver's Java trusts the certificate authorities
that this Python trusts, so a company's own (`SSL_CERT_FILE`) works too.
"""

import hashlib
import os
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from ottla.kernel.error import OttlaError
from ottla.spark import cache
from ottla.spark.java import Java

#: Resolving from a distant repository took 10 s; a slow line may take much longer.
RESOLVE_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Artifact:
    """The Maven coordinates of a jar, and its SHA-256 if known."""

    group: str
    name: str
    version: str
    sha256: str | None = None

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


#: The connectors of Spark 4.2 and 4.3 run with these.
COMPANIONS = (
    Artifact(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Artifact(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
    # A local file system that forks no process to set permissions; forking is half of a small batch's latency.
    Artifact(
        "com.globalmentor",
        "hadoop-bare-naked-local-fs",
        "0.1.0",
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
    ),
)

#: The connector tested with PySpark 4.3.0, for when Spark's own is not available.
TESTED_CONNECTOR = (
    Artifact(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Artifact(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.0-preview1",
        "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
    ),
)


def jars(java: Java, spark_version: str, spark_jars: Path) -> list[Path]:
    """The connector's jars, downloaded into the cache if needed. OttlaError if that fails."""
    kept = cache.directory("jars") / f"spark-{spark_version}"
    if not kept.is_dir():
        sys.stderr.write(f"ottla: downloading Spark's Kafka connector into {kept} (once)\n")
        _download(java, spark_version, spark_jars, kept)
    return sorted(kept.glob("*.jar"))


def _download(java: Java, spark_version: str, spark_jars: Path, kept: Path) -> None:
    own = tuple(Artifact(artifact.group, artifact.name, spark_version) for artifact in TESTED_CONNECTOR)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".resolving-") as scratch, ThreadPoolExecutor(2) as both:

        def resolve(connector: tuple[Artifact, ...]) -> tuple[str, Path]:
            work = Path(tempfile.mkdtemp(dir=scratch))
            return _resolve(java, spark_jars, (*connector, *COMPANIONS), work), work / "jars"

        # In parallel: a resolver spends its seconds waiting for responses.
        for error, downloaded in both.map(resolve, (own, TESTED_CONNECTOR)):
            if not error:
                _publish(downloaded, kept)
                return
            if "Server access error" in error:
                break  # without a response, the artifacts may exist
    raise OttlaError(
        f"Spark's Kafka connector is not in {kept} and cannot be downloaded: {_reason(error)}. Start once with network "
        "access; set OTTLA_MAVEN_REPOSITORY to use another Maven repository"
    )


def _resolve(java: Java, spark_jars: Path, artifacts: tuple[Artifact, ...], work: Path) -> str:
    """Run Ivy to download the artifacts into work/jars. Returns Ivy's output if it failed, otherwise ""."""
    ivy = next(iter(spark_jars.glob("ivy-*.jar")), None)
    if ivy is None:
        raise OttlaError(f"{spark_jars} has no ivy-*.jar (expected the jars directory of PySpark); reinstall PySpark")
    (work / "settings.xml").write_text(settings(work))
    (work / "ivy.xml").write_text(_module(artifacts))
    trust = trust_store(work / "trust.jks")
    command = [
        *(str(java.path), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.useSystemProxies=true", *trust),
        *("-cp", str(ivy), "org.apache.ivy.Main", "-settings", str(work / "settings.xml")),
        *("-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle"),
        *("-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return f"Server access error: no response within {RESOLVE_TIMEOUT_S} s"
    if done.returncode != 0:
        return done.stdout + done.stderr
    for artifact in artifacts:
        _check(artifact, work / "jars" / artifact.file)
    return ""


def _check(artifact: Artifact, jar: Path) -> None:
    if not jar.is_file():
        raise OttlaError(f"the resolver did not download {jar.name}")
    if artifact.sha256 and hashlib.sha256(jar.read_bytes()).hexdigest() != artifact.sha256:
        raise OttlaError(f"invalid file {jar.name}: its SHA-256 is not {artifact.sha256}; check the Maven repository")


def _publish(downloaded: Path, kept: Path) -> None:
    try:
        downloaded.rename(kept)
    except OSError:
        if not kept.is_dir():  # another process may have published the same files first
            raise
        shutil.rmtree(downloaded)


def _reason(output: str) -> str:
    lines = [line.strip(" :\t") for line in output.splitlines()]
    reasons = [line for line in lines if "Server access error" in line or line.endswith(": not found")]
    return reasons[0] if reasons else (lines[-1] if lines else "the resolver had no output")


def _module(artifacts: tuple[Artifact, ...]) -> str:
    wanted = "".join(
        f'<dependency org="{artifact.group}" name="{artifact.name}" rev="{artifact.version}" '
        'transitive="false" conf="default->master"/>'
        for artifact in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="ottla" module="connector"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def settings(work: Path) -> str:
    """Ivy's settings: Maven's local repository first, then the remote one."""
    repository = os.environ.get("OTTLA_MAVEN_REPOSITORY") or _mirror()
    root = f" root={quoteattr(repository.rstrip('/') + '/')}" if repository else ""
    local = quoteattr((Path.home() / ".m2" / "repository").as_uri() + "/")
    return (
        '<ivysettings><settings defaultResolver="all"/>'
        f"<caches defaultCacheDir={quoteattr(str(work / 'ivy'))}/>"
        '<resolvers><chain name="all" returnFirst="true">'
        f'<ibiblio name="local" m2compatible="true" checksums="" root={local}/>'
        f'<ibiblio name="remote" m2compatible="true"{root}/>'
        "</chain></resolvers></ivysettings>"
    )


def _mirror() -> str | None:
    """The mirror of Central in this user's Maven settings, or None."""
    try:
        root = ET.parse(Path.home() / ".m2" / "settings.xml").getroot()
    except (OSError, ET.ParseError):
        return None
    space = root.tag[: root.tag.index("}") + 1] if root.tag.startswith("{") else ""
    for mirror in root.iter(f"{space}mirror"):
        of = (mirror.findtext(f"{space}mirrorOf") or "").replace(" ", "").split(",")
        url = (mirror.findtext(f"{space}url") or "").strip()
        if url and "!central" not in of and {"central", "*", "external:*"}.intersection(of):
            return url
    return None


def trust_store(path: Path) -> list[str]:
    """Java options that make Java trust the certificate authorities of this Python; none if Python lists none.

    The file is in Java's JKS format: entries of kind 2 (a trusted certificate), then a digest that Java checks only if
    it is given the password.
    """
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    store = bytearray(struct.pack(">III", 0xFEEDFEED, 2, len(certificates)))
    for number, certificate in enumerate(certificates):
        alias = str(number).encode()
        store += struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">QH", 0, len(b"X.509")) + b"X.509"
        store += struct.pack(">I", len(certificate)) + certificate
    password = "changeit".encode("utf-16-be")
    store += hashlib.sha1(password + b"Mighty Aphrodite" + store, usedforsecurity=False).digest()
    path.write_bytes(store)
    return [f"-Djavax.net.ssl.trustStore={path}", "-Djavax.net.ssl.trustStoreType=jks"]
