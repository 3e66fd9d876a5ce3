"""A Kerberos realm of its own: MIT's KDC on loopback, with its configuration and database in one directory."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.security.kerberos import MODULE, library
from tests.client.conftest import eventually
from tests.interop.server import free_ports

REALM = "OTTLA.TEST"
#: What Kerberos makes of 127.0.0.1, by which the servers are reached.
HOST = socket.getnameinfo(("127.0.0.1", 0), 0)[0]
SERVICE = f"kafka/{HOST}"
_MISSING = "Kerberos' {} is not on this machine (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user)"


class Kdc:
    """The KDC of `REALM`. Its maker stops it. `environment` leads programs to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        (port,) = free_ports(1)
        self.config = self._config("krb5.conf", port)
        #: for clients whose KDC is away
        self.nowhere = self._config("nowhere.conf", free_ports(1)[0])
        profile = directory / "kdc.conf"
        profile.write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n{REALM} = {{\ndatabase_name = {directory}/db\nkey_stash_file = {directory}/stash\n}}\n"
            f"[logging]\nkdc = FILE:{directory}/kdc.log\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(profile),
            "KRB5CCNAME": f"FILE:{directory}/default-cache",
            "KRB5RCACHENAME": f"file2:{directory}/replays",
        }
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        self.add("probe")
        self.start()

    def start(self) -> None:
        """Start the KDC, and wait until it gives a ticket."""
        directory = self._directory
        self._process = subprocess.Popen(
            [_program("krb5kdc"), "-n"], env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(lambda: self._kinit("probe", directory / "probe-cache").returncode == 0, timeout_s=60)

    def _config(self, name: str, port: int) -> Path:
        file = self._directory / name
        file.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_realm = false\ndns_lookup_kdc = false\n"
            f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{port}\n}}\n"
        )
        return file

    def keytab(self, principal: str) -> Path:
        return self._directory / f"{principal.replace('/', '-')}.keytab"

    def add(self, *principals: str) -> None:
        """Principals with keys of chance, each with its keytab."""
        for each in principals:
            self.command(f"addprinc -randkey {each}", f"ktadd -k {self.keytab(each)} {each}")

    def command(self, *lines: str) -> None:
        """Commands of kadmin."""
        self._run("kadmin.local", typed="\n".join(lines) + "\n")

    def ticket(self, principal: str, *options: str) -> str:
        """A ticket cache with the principal's ticket, by kinit."""
        cache = self._directory / f"{principal}.cache"
        done = self._kinit(principal, cache, *options)
        assert done.returncode == 0, done.stderr
        return f"FILE:{cache}"

    def _kinit(self, principal: str, cache: Path, *options: str) -> subprocess.CompletedProcess[str]:
        words = [*options, "-k", "-t", str(self.keytab(principal)), "-c", f"FILE:{cache}", principal]
        return self._done([_program("kinit"), *words])

    def _run(self, program: str, *words: str, typed: str = "") -> None:
        done = self._done([_program(program), *words], typed)
        assert done.returncode == 0, done.stderr

    def _done(self, command: Iterable[str], typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(command), env=self.environment, input=typed, capture_output=True, text=True, timeout=60
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _program(name: str) -> str:
    # Debian has the KDC's programs where only root looks.
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    assert found is not None, _MISSING.format(name)
    return found


@contextmanager
def realm(directory: Path, *principals: str) -> Iterator[Kdc]:
    """A KDC that knows `principals`; this process and those that it starts find it by their environment."""
    library()
    found = Kdc(directory)
    try:
        found.add(*principals)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in found.environment.items():
                patch.setenv(name, value)
            patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={found.config}")
            yield found
    finally:
        found.stop()


def krb5(**options: str) -> str:
    """A JAAS line of Krb5LoginModule."""
    return f"{MODULE} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


def keyed(kdc: Kdc, principal: str, **options: str) -> str:
    """That of a principal with its keytab."""
    return krb5(useKeyTab="true", keyTab=str(kdc.keytab(principal)), principal=f"{principal}@{REALM}", **options)
