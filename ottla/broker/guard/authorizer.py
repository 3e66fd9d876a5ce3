"""The node's authorizer: Kafka's StandardAuthorizer with the ACLs from the metadata, or a plug-in.

Rules:
- The authorizer follows the committed metadata: an ACL takes effect when this node has replayed it. At a start it takes
  the rules of the whole log: until the quorum has a leader, a restarted controller knows no commit after its snapshot.
- `ottla.authorizer` logs denials at INFO and permissions at DEBUG, except for questions that only filter a list. One
  request gets at most `_LINES_MAX` lines, because it may name as many resources as its sender likes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.broker.call.handler import Call
from ottla.kernel.address import java_address
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.metadata.image import Image
from ottla.security.acl import CLUSTER_NAME, AclOperation, AclResource, Permissions, Rules, is_principal
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import STANDARD_AUTHORIZER

_log = logging.getLogger("ottla.authorizer")

#: Resource type -> the error code of a denial.
CODES = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LINES_MAX = 100


class Authorizer:
    """Answers whether a client may perform an operation. The node creates it if authorizer.class.name is set."""

    def __init__(self, settings: ServerSettings) -> None:
        is_standard = settings.authorizer_class_name == STANDARD_AUTHORIZER
        self.rules: Permissions = _rules(settings) if is_standard else _plugged(settings)
        self._image = Image.empty()
        #: Whether the rules are those of `begin`.
        self._is_provisional = False
        #: The request of the last question, and its number of log lines.
        self._call: Call | None = None
        self._lines = 0

    @property
    def has_acls(self) -> bool:
        """Whether it decides by Kafka's ACLs."""
        return isinstance(self.rules, Rules)

    def begin(self, image: Image) -> None:
        """Apply the ACLs of the log at the start, of which the end may not be committed: better than older ones."""
        self._change(self._image, image, image.acls)
        self._image = image
        self._is_provisional = True

    def follow(self, image: Image) -> None:
        """Apply the changes of the ACLs up to this committed image."""
        old, self._image = self._image, image
        if image.acls is old.acls:
            return
        # An uncommitted image is not the one before this one, even if it ends at the same offset.
        step = dict.fromkeys([*image.acls, *old.acls]) if self._is_provisional else image.touched_acls(old)
        self._is_provisional = False
        self._change(old, image, step)

    def _change(self, old: Image, image: Image, touched: Iterable[Uuid]) -> None:
        if not isinstance(self.rules, Rules):
            # A plug-in has rules of its own.
            return
        for acl_id in touched:
            before, after = old.acls.get(acl_id), image.acls.get(acl_id)
            if before is not None and before != after:
                self.rules.remove(before)
            if after is not None and after != before:
                self.rules.add(after)

    def allows(
        self, call: Call, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME, *, logged: bool = True
    ) -> bool:
        """Whether the client may perform the operation. `logged`: log the answer."""
        principal, host = call.principal, java_address(call.client_address)
        allowed = self.rules.allows(principal, host, operation, kind, name)
        level = logging.DEBUG if allowed else logging.INFO
        if logged and _log.isEnabledFor(level):
            verdict = "is allowed" if allowed else "is denied"
            self._log_verdict(
                call, level, f"{principal} {verdict} {operation.name} on {kind.name} {name[:200]} from {host}"
            )
        return allowed

    def _log_verdict(self, call: Call, level: int, line: str) -> None:
        if call is not self._call:
            self._call, self._lines = call, 0
        self._lines += 1
        if self._lines <= _LINES_MAX:
            _log.log(level, "%s", line)
        elif self._lines == _LINES_MAX + 1:
            _log.log(level, "further checks of %s in this request are not logged", call.principal)

    def check(self, call: Call, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME) -> None:
        """Raise KafkaError with the resource type's code if the operation is denied."""
        if not self.allows(call, operation, kind, name):
            raise KafkaError(CODES[kind])

    def check_read(self, call: Call, topic: str) -> None:
        """Raise KafkaError if the client may not read a topic."""
        self.check(call, AclOperation.READ, AclResource.TOPIC, topic)

    def describes(self, call: Call, topic: str) -> bool:
        """Whether the client may describe a topic; not logged, because the question filters a list."""
        return self.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic, logged=False)

    def allows_any(self, call: Call, operation: AclOperation, kind: AclResource) -> bool:
        """Whether the client may perform the operation on at least one resource of this type."""
        return self.rules.allows_any(call.principal, java_address(call.client_address), operation, kind)

    def operations(self, call: Call, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        """The authorized operations on a resource, one bit each (KIP-430)."""
        return self.rules.operations(call.principal, java_address(call.client_address), kind, name)


def _plugged(settings: ServerSettings) -> Permissions:
    from ottla.broker.guard.plugin import AUTHORIZERS, PluggedRules, load

    setting = ServerSettings.authorizer_class_name.name
    plugin = load(AUTHORIZERS, setting, settings.authorizer_class_name, settings.file_texts())
    return PluggedRules(plugin, frozenset(_super_users(settings)))


def _super_users(settings: ServerSettings) -> list[str]:
    users = [each.strip() for each in (settings.plain_text("super.users") or "").split(";") if each.strip()]
    for each in users:
        if not is_principal(each):
            raise OttlaError(f"super.users: {each} is not TYPE:NAME (such as User:admin); separate users with ;")
    return users


def _rules(settings: ServerSettings) -> Rules:
    users = _super_users(settings)
    otherwise = (settings.plain_text("allow.everyone.if.no.acl.found") or "false").strip().lower()
    if otherwise not in ("true", "false"):
        raise OttlaError(f"invalid value for allow.everyone.if.no.acl.found: {otherwise} (expected true or false)")
    return Rules(users, otherwise=otherwise == "true")
