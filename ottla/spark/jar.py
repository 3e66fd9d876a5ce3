"""The jars that Spark's Kafka connector needs beyond PySpark: found in the cache, or brought once.

PySpark holds no Kafka connector, but it holds Ivy, the resolver that `spark.jars.packages` uses. We run that same Ivy
ourselves, for exactly the five artifacts below, not following their dependencies: the poms of some Spark releases name
artifacts and repositories that cannot be had. Nothing but Java and PySpark is needed for it, no Maven.

Rules:
- After the first time there is no network: `jars()` looks at the cache only.
- The connector of Spark's own version is taken where it exists, else the mix that was proved with this Spark.
- An artifact with a known SHA-256 must have it; Ivy checks the repository's own checksum for the rest.

Where from: `OTTLA_MAVEN_REPOSITORY` (the address of a Maven repository), else the mirror of Central in
`~/.m2/settings.xml`, else Maven Central, which Ivy knows by itself. TLS trusts what this Python trusts, so that a
company's own certificate authority (`SSL_CERT_FILE`) works for the resolver's Java too.
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

#: resolving from far away took 10 s; a slow line may take much longer
RESOLVE_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar by its Maven coordinates."""

    group: str
    name: str
    version: str
    sha256: str | None = None

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


#: Any connector of Spark 4.2 and 4.3 runs with these.
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
    # A local file system that forks no process to set permissions: half of the latency of a small batch.
    Artifact(
        "com.globalmentor",
        "hadoop-bare-naked-local-fs",
        "0.1.0",
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
    ),
)

#: What was proved with PySpark 4.3.0 where its own connector is not to be had.
PROVED = (
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
    """The connector's jars, from the cache or brought into it. OttlaError when they cannot be had."""
    kept = cache.directory("jars") / f"spark-{spark_version}"
    if not kept.is_dir():
        sys.stderr.write(f"ottla: bringing Spark's Kafka connector into {kept} (once)\n")
        _bring(java, spark_version, spark_jars, kept)
    return sorted(kept.glob("*.jar"))


def _bring(java: Java, spark_version: str, spark_jars: Path, kept: Path) -> None:
    own = tuple(Artifact(artifact.group, artifact.name, spark_version) for artifact in PROVED)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".resolving-") as scratch, ThreadPoolExecutor(2) as both:

        def resolve(connector: tuple[Artifact, ...]) -> tuple[str, Path]:
            work = Path(tempfile.mkdtemp(dir=scratch))
            return _resolve(java, spark_jars, (*connector, *COMPANIONS), work), work / "jars"

        # Side by side: a resolver spends its seconds waiting for answers.
        for said, brought in both.map(resolve, (own, PROVED)):
            if not said:
                _publish(brought, kept)
                return
            if "Server access error" in said:
                break  # no answer is not the answer "not there"
    raise OttlaError(
        f"Spark's Kafka connector is not in {kept} and cannot be brought: {_reason(said)}. Once it is there no network "
        "is needed. OTTLA_MAVEN_REPOSITORY may name another Maven repository to bring it from"
    )


def _resolve(java: Java, spark_jars: Path, artifacts: tuple[Artifact, ...], work: Path) -> str:
    """Run Ivy: the artifacts' jars come into work/jars. "" when all are there, else what Ivy said."""
    ivy = next(iter(spark_jars.glob("ivy-*.jar")), None)
    if ivy is None:
        raise OttlaError(f"{spark_jars} has no ivy-*.jar: is that PySpark's own directory?")
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
        return f"Server access error: no answer within {RESOLVE_TIMEOUT_S} s"
    if done.returncode != 0:
        return done.stdout + done.stderr
    for artifact in artifacts:
        _check(artifact, work / "jars" / artifact.file)
    return ""


def _check(artifact: Artifact, jar: Path) -> None:
    if not jar.is_file():
        raise OttlaError(f"the resolver brought no {jar.name}")
    if artifact.sha256 and hashlib.sha256(jar.read_bytes()).hexdigest() != artifact.sha256:
        raise OttlaError(f"{jar.name} is not the file it should be: its SHA-256 is not {artifact.sha256}")


def _publish(made: Path, kept: Path) -> None:
    try:
        made.rename(kept)
    except OSError:
        if not kept.is_dir():  # another process may have been first: its files are the same
            raise
        shutil.rmtree(made)


def _reason(said: str) -> str:
    lines = [line.strip(" :\t") for line in said.splitlines()]
    told = [line for line in lines if "Server access error" in line or line.endswith(": not found")]
    return told[0] if told else (lines[-1] if lines else "the resolver said nothing")


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
    """Ivy's settings: Maven's own store on this machine first, then the one repository to bring from."""
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
    """The mirror that Maven's own settings of this user name for Central."""
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
    """Java's options to trust the certificate authorities that this Python trusts; none when it lists none.

    The file is Java's JKS format: entries of kind 2 (a trusted certificate), then a digest that is looked at only when
    the usual password is given.
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
