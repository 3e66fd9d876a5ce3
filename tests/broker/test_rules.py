"""The authorizer's rules follow the metadata, record by record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.guard.authorizer import Authorizer
from ottla.kernel.ids import Uuid
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.image import Image
from ottla.security.acl import AclOperation, AclResource
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.wire.record.security import AccessControlEntryRecord, RemoveAccessControlEntryRecord


def test_rules_follow_the_metadata_also_one_that_is_written_again_under_its_id() -> None:
    def rule(number: int, principal: str, operation: AclOperation) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=Uuid(bytes(15) + bytes([number])),
            resource_type=AclResource.TOPIC,
            resource_name="t",
            pattern_type=3,
            principal=principal,
            host="*",
            operation=operation,
            permission_type=3,
        )

    def gone(number: int) -> RemoveAccessControlEntryRecord:
        return RemoveAccessControlEntryRecord(id=Uuid(bytes(15) + bytes([number])))

    authorizer = Authorizer(SimpleNamespace(plain_text=lambda _: None, authorizer_class_name=STANDARD_AUTHORIZER))  # type: ignore[arg-type]
    fold = MetadataReplayer(Image.empty())
    offset = 0

    def may(*records: Any) -> set[str]:
        """Who may read and who may write, after these records in one step."""
        nonlocal offset
        for each in records:
            fold.replay(each, offset, 1, 0)
            offset += 1
        authorizer.follow(fold.publish(offset - 1, 1, 0))
        rules, topic = authorizer.rules, AclResource.TOPIC
        return {
            f"{who} {operation.name}"
            for who in ("ann", "bob")
            for operation in (AclOperation.READ, AclOperation.WRITE)
            if rules.allows(f"User:{who}", "10.0.0.1", operation, topic, "t")
        }

    assert may(rule(1, "User:ann", AclOperation.READ)) == {"ann READ"}
    assert may(rule(2, "User:bob", AclOperation.READ)) == {"ann READ", "bob READ"}
    assert may(rule(1, "User:ann", AclOperation.WRITE)) == {"ann WRITE", "bob READ"}
    assert may(rule(1, "User:bob", AclOperation.WRITE)) == {"bob READ", "bob WRITE"}
    assert may(gone(1), rule(1, "User:ann", AclOperation.READ)) == {"ann READ", "bob READ"}
    assert may(rule(3, "User:ann", AclOperation.READ)) == {"ann READ", "bob READ"}
    assert may(gone(1)) == {"ann READ", "bob READ"}
    assert may(rule(4, "User:ann", AclOperation.WRITE), gone(4), gone(3)) == {"bob READ"}
    assert may(gone(2)) == set()
