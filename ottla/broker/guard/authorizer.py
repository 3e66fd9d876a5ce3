"""The node's authorizer: Kafka's StandardAuthorizer, with the rules of the metadata.

Rules:
- The authorizer follows the committed metadata: a rule counts from when the node has it.
- Denials are logged at INFO by `ottla.authorizer`, what is allowed at DEBUG, unless a question only filters a list. Of
  one request not more than `_LINES_MAX` lines: it may name as much as its sender likes.
"""

from __future__ import annotations

import ipaddress
import logging

from ottla.broker.call.handler import Call
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.metadata.image import Image
from ottla.security.acl import CLUSTER_NAME, AclOperation, AclResource, Rules
from ottla.settings.server.settings import ServerSettings

_log = logging.getLogger("ottla.authorizer")

#: What is answered where something of a kind may not be done.
CODES = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LINES_MAX = 100


class Authorizer:
    """Made by a node that is told to have one."""

    def __init__(self, settings: ServerSettings) -> None:
        self.rules = _rules(settings)
        self._image = Image.empty()
        #: The request that was asked about last, and its lines in the log.
        self._call: Call | None = None
        self._lines = 0

    def follow(self, image: Image) -> None:
        """The metadata is now this."""
        old, self._image = self._image, image
        if image.acls is old.acls:
            return
        step = image.touched_acls(old)
        for each in step:
            if each in old.acls:
                self.rules.remove(old.acls[each])
            if each in image.acls:
                self.rules.add(image.acls[each])

    def allows(
        self, call: Call, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME, *, told: bool = True
    ) -> bool:
        """May the client do this? `told`: does it show in the log?"""
        principal, host = call.principal, java_host(call.client_address)
        allowed = self.rules.allows(principal, host, operation, kind, name)
        level = logging.DEBUG if allowed else logging.INFO
        if told and _log.isEnabledFor(level):
            said = "is allowed" if allowed else "is denied"
            self._say(call, level, f"{principal} {said} {operation.name} on {kind.name} {name[:200]} from {host}")
        return allowed

    def _say(self, call: Call, level: int, line: str) -> None:
        if call is not self._call:
            self._call, self._lines = call, 0
        self._lines += 1
        if self._lines <= _LINES_MAX:
            _log.log(level, "%s", line)
        elif self._lines == _LINES_MAX + 1:
            _log.log(level, "%s asked about more in this request, which is not shown", call.principal)

    def check(self, call: Call, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME) -> None:
        """KafkaError with the kind's code, if the client may not."""
        if not self.allows(call, operation, kind, name):
            raise KafkaError(CODES[kind])

    def check_read(self, call: Call, topic: str) -> None:
        """KafkaError, if the client may not read a topic."""
        self.check(call, AclOperation.READ, AclResource.TOPIC, topic)

    def describes(self, call: Call, topic: str) -> bool:
        """May the client know of a topic? The question filters a list, so it does not show in the log."""
        return self.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic, told=False)

    def allows_any(self, call: Call, operation: AclOperation, kind: AclResource) -> bool:
        """May the client do this to any one resource of the kind?"""
        return self.rules.allows_any(call.principal, java_host(call.client_address), operation, kind)

    def operations(self, call: Call, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        """The authorized operations of a resource, a bit each (KIP-430)."""
        return self.rules.operations(call.principal, java_host(call.client_address), kind, name)


def java_host(address: str) -> str:
    """An address as Java's getHostAddress writes it, which is how rules have it: 0:0:0:0:0:0:0:1."""
    if ":" not in address:
        return address
    packed = ipaddress.IPv6Address(address.partition("%")[0])
    if packed.ipv4_mapped is not None:
        return str(packed.ipv4_mapped)
    return ":".join(f"{int(each, 16):x}" for each in packed.exploded.split(":"))


def _rules(settings: ServerSettings) -> Rules:
    users = [each.strip() for each in (settings.plain_text("super.users") or "").split(";") if each.strip()]
    for each in users:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise OttlaError(f"super.users: {each} is not TYPE:NAME (User:admin); users are separated by ;")
    otherwise = (settings.plain_text("allow.everyone.if.no.acl.found") or "false").strip().lower()
    if otherwise not in ("true", "false"):
        raise OttlaError(f"allow.everyone.if.no.acl.found={otherwise}: it takes true or false")
    return Rules(users, otherwise=otherwise == "true")
