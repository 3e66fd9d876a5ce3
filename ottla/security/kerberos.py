"""Kerberos by python-gssapi: a node accepts tickets with its keytab; a client gets them by a keytab or a ticket cache.

Rules:
- The JAAS line is that of Java's Krb5LoginModule. The options useKeyTab, keyTab, principal, useTicketCache, ticketCache
  and serviceName are read. The realm and its KDCs are configured in krb5.conf (KRB5_CONFIG).
- Only Kerberos itself is accepted: SPNEGO and IAKERB, which would contact a KDC, are refused.
- MIT's library reads the node's keytab for each sign-in: a key added to it takes effect at once.
- `Initiator.begin` waits for the KDC, so it runs in a thread.
- Errors are one line with the MIT library's reason; they hold neither keys nor tokens.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from ottla.kernel.client_error import AuthenticationFailed, NotReachable
from ottla.kernel.error import OttlaError
from ottla.security.gss import GssFailed
from ottla.security.jaas import parse_jaas

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_LENGTH_MAX = 300
#: The MIT library's messages when no KDC answers. Its error codes differ between processes.
_UNREACHABLE = ("Cannot contact any KDC", "Cannot resolve network address for KDC")


def library() -> Any:
    """The module `gssapi`. OttlaError if it is not installed."""
    try:
        import gssapi
    except ImportError as error:
        raise OttlaError(
            "GSSAPI needs python-gssapi: pip install 'ottla[kerberos]', which builds it "
            f"(Debian: libkrb5-dev and gcc first): {error}"
        ) from None
    return gssapi


def options_of(name: str, text: str) -> dict[str, str]:
    """The options of a JAAS line for GSSAPI. OttlaError names the setting `name`."""
    entry = parse_jaas(name, text)
    if entry.module != MODULE:
        raise OttlaError(f"{name} names the module {entry.module}; GSSAPI takes {MODULE}")
    return entry.options


def service_name(configured: str | None, options: dict[str, str]) -> str | None:
    """The first part of the brokers' principal, from the setting or the JAAS line. OttlaError if they differ."""
    own = options.get("serviceName")
    if own and configured and own != configured:
        raise OttlaError(
            f"sasl.kerberos.service.name={configured} and serviceName={own} of the JAAS line differ: leave one out"
        )
    return own or configured


def is_on(options: dict[str, str], name: str) -> bool:
    """Whether a JAAS option is true."""
    return options.get(name, "").lower() == "true"


def default_realm() -> str:
    """The default realm of krb5.conf; "" if it has none."""
    gssapi = library()
    try:
        name = gssapi.Name("x", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).partition("@")[2]


class Acceptor:
    """A node's credentials. OttlaError if the keytab is unusable; `where` is the setting that names it."""

    def __init__(self, where: str, text: str) -> None:
        library()
        options = options_of(where, text)
        principal = options.get("principal", "")
        if not is_on(options, "useKeyTab") or not principal:
            raise OttlaError(f'{where}: a listener needs useKeyTab=true, keyTab="FILE" and principal="NAME/HOST@REALM"')
        # "*" is Java's notation for every principal of the keytab.
        self._credentials = _keys(where, _keytab(where, options), None if principal == "*" else principal)

    def begin(self) -> KerberosContext:
        """Start the server's side of a sign-in."""
        return KerberosContext(library().SecurityContext(creds=self._credentials, usage="accept"))


class Initiator:
    """Gets the tickets of a client, or of a node at other nodes. OttlaError if the settings are incomplete."""

    def __init__(
        self,
        service: str | None,
        text: str | None,
        keytab: str | None = None,
        principal: str | None = None,
        *,
        where: str = "sasl.jaas.config",
    ) -> None:
        """`text` is the JAAS line of the setting `where`; `keytab` and `principal` are librdkafka's settings."""
        library()
        options = {} if text is None else options_of(where, text)
        self._principal = principal or options.get("principal")
        if keytab is not None:
            where, options = "sasl.kerberos.keytab", options | {"useKeyTab": "true", "keyTab": keytab}
        found = service_name(service, options)
        if not found:
            raise OttlaError("GSSAPI needs sasl.kerberos.service.name, the first part of the brokers' principal: kafka")
        self._service = found
        self._store: dict[str, str] = {}
        if is_on(options, "useKeyTab"):
            if not self._principal:
                raise OttlaError(f"{where} names a keytab and no principal: whose key of it is to be used?")
            keytab = _keytab(where, options)
            # Fail early if the principal's key is missing.
            _keys(where, keytab, self._principal)
            # Clients with the same key share their tickets.
            key = hashlib.sha256(repr((self._principal, keytab)).encode()).hexdigest()
            self._store = {"ccache": f"MEMORY:ottla-{key[:16]}"}
            if keytab:
                self._store["client_keytab"] = keytab
        elif text is not None and not is_on(options, "useTicketCache"):
            raise OttlaError(f"{where} has neither useKeyTab=true nor useTicketCache=true: where is the ticket from?")
        elif options.get("ticketCache"):
            self._store = {"ccache": options["ticketCache"]}

    def begin(self, host: str) -> tuple[KerberosContext, bytes]:
        """Start a sign-in at a broker; returns its context and first token. Waits for the KDC.

        NotReachable if no KDC answers, AuthenticationFailed if none gives a ticket.
        """
        gssapi = library()
        target = f"{self._service}@{host}"
        try:
            context = self._context(target)
            return KerberosContext(context), context.step(None) or b""
        except gssapi.exceptions.GSSError as error:
            why = _reason(error)
            kind = NotReachable if why.startswith(_UNREACHABLE) else AuthenticationFailed
            keytab = self._store.get("client_keytab")
            by = f" (with the key of {self._principal} in {keytab})" if keytab else ""
            raise kind(f"there is no Kerberos ticket for {target}: {why}{by}") from None

    def _context(self, target: str) -> Any:
        gssapi = library()
        kind, mechanism = gssapi.NameType, gssapi.MechType.kerberos
        name = gssapi.Name(self._principal, kind.kerberos_principal) if self._principal else None
        return gssapi.SecurityContext(
            name=gssapi.Name(target, kind.hostbased_service),
            creds=gssapi.Credentials(name=name, usage="initiate", mechs=[mechanism], store=self._store or None),
            mech=mechanism,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
            usage="initiate",
        )


class KerberosContext:
    """A security context of python-gssapi, as `gss.Context`."""

    def __init__(self, context: Any) -> None:
        self._context = context
        # Raise at once for a refused token instead of sending an error token first.
        context.__DEFER_STEP_ERRORS__ = False

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        return _told(lambda: self._context.step(token) or b"")

    def wrap(self, message: bytes) -> bytes:
        return _told(lambda: self._context.wrap(message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        return _told(lambda: self._context.unwrap(message).message)


def _told(call: Callable[[], Any]) -> bytes:
    gssapi = library()
    try:
        return bytes(call())
    except gssapi.exceptions.GSSError as error:
        raise GssFailed(_reason(error)) from None


def _keytab(where: str, options: dict[str, str]) -> str | None:
    """The keytab of a JAAS line; None for the machine's default."""
    path = options.get("keyTab", "").removeprefix("FILE:")
    if not path:
        return None
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise OttlaError(f"{where}: the keytab {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    return f"FILE:{path}"


def _keys(where: str, keytab: str | None, principal: str | None) -> Any:
    """The credentials of a principal (None: of all) from a keytab. OttlaError if it has none."""
    gssapi = library()
    try:
        return gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None,
            usage="accept",
            mechs=[gssapi.MechType.kerberos],
            store={"keytab": keytab} if keytab else None,
        )
    except gssapi.exceptions.GSSError as error:
        raise OttlaError(f"{where}: the keytab cannot be used for {principal or '*'}: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """The library's reason, in one line."""
    try:
        said = error.get_all_statuses(error.min_code, False) if error.min_code else []
        said = said or error.get_all_statuses(error.maj_code, True)
    except Exception:
        said = [type(error).__name__]
    text = "; ".join(each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in said)
    # The text may hold characters of the peer's choice: a refused ticket names a server.
    return "".join(each if each.isprintable() else " " for each in text)[:_LENGTH_MAX]
