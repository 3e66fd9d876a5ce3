"""ACLs, quotas, SCRAM users and delegation tokens through the admin client.

A broker that does not serve one of them says so with its own typed error; Apache Kafka does all that it can do without
an authorizer.
"""

from ottla.client import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    Admin,
    AnyName,
    ErrorCode,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    TopicPartition,
)
from ottla.security.acl import OPERATIONS
from tests.client.conftest import eventually, refusal, serves

#: How a cluster says that it does not do this: it does not know the request, or it is switched off.
NOT_HERE = {
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.SECURITY_DISABLED,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
}


def test_a_cluster_without_an_authorizer_says_so(admin: Admin, name: str) -> None:
    acl = Acl(AclResource.TOPIC, name, "User:ann", AclOperation.READ)
    assert refusal(admin.describe_acls) in NOT_HERE
    assert refusal(lambda: admin.create_acls([acl]).check()) in NOT_HERE
    assert refusal(lambda: admin.delete_acls([AclFilter(name=name)]).check()) in NOT_HERE


def test_what_a_principal_may_do_is_told_when_it_is_asked_for(admin: Admin, topic: str, name: str) -> None:
    """Without an authorizer: each operation that the kind of resource knows."""
    admin.alter_group_offsets(name, {TopicPartition(topic, 0): 0}).check()
    for asked in (False, True):
        told = {
            AclResource.TOPIC: admin.describe_topic(topic, include_authorized_operations=asked).authorized_operations,
            AclResource.GROUP: admin.describe_group(name, include_authorized_operations=asked).authorized_operations,
            AclResource.CLUSTER: admin.describe_cluster(include_authorized_operations=asked).authorized_operations,
        }
        assert told == {kind: set(map(AclOperation, OPERATIONS[kind])) if asked else None for kind in told}


def test_quotas_are_set_found_by_their_parts_and_taken_away(admin: Admin, name: str) -> None:
    ann, all_of_ann = {"user": name, "client-id": "app"}, {"user": name}
    admin.alter_client_quotas([(ann, {"producer_byte_rate": 1e6}), (all_of_ann, {"consumer_byte_rate": 2e6})]).check()
    both = {QuotaEntity.of(ann): {"producer_byte_rate": 1e6}, QuotaEntity.of(all_of_ann): {"consumer_byte_rate": 2e6}}
    eventually(lambda: admin.describe_client_quotas({"user": name}) == both)
    assert admin.describe_client_quotas({"user": name}, strict=True) == {
        QuotaEntity.of(all_of_ann): {"consumer_byte_rate": 2e6}
    }
    assert QuotaEntity.of(ann) in admin.describe_client_quotas({"user": AnyName(), "client-id": AnyName()})
    admin.alter_client_quotas([(ann, {"producer_byte_rate": None}), (all_of_ann, {"consumer_byte_rate": None})]).check()
    eventually(lambda: admin.describe_client_quotas({"user": name}) == {})


def test_a_quota_that_does_not_exist_is_refused(admin: Admin, name: str) -> None:
    change = [({"user": name}, {"bytes": 1.0})]
    assert refusal(lambda: admin.alter_client_quotas(change).check()) is ErrorCode.INVALID_REQUEST


def test_passwords_are_set_described_without_being_told_and_deleted(admin: Admin, name: str) -> None:
    both = [
        ScramCredential(name, ScramMechanism.SCRAM_SHA_256, "secret"),
        ScramCredential(name, ScramMechanism.SCRAM_SHA_512, "secret", iterations=8_192),
    ]
    assert "secret" not in repr(both)
    if not serves(admin, "AlterUserScramCredentials"):
        assert refusal(lambda: admin.alter_scram_credentials(both)) is ErrorCode.UNSUPPORTED_VERSION
        return
    assert refusal(lambda: admin.alter_scram_credentials(both).check()) is ErrorCode.DUPLICATE_RESOURCE
    for one in both:
        admin.alter_scram_credentials([one]).check()
    known = {ScramMechanism.SCRAM_SHA_256: 4_096, ScramMechanism.SCRAM_SHA_512: 8_192}
    eventually(lambda: admin.describe_scram_credentials().succeeded.get(name) == known)
    for mechanism in ScramMechanism:
        admin.alter_scram_credentials([ScramDeletion(name, mechanism)]).check()
    eventually(
        lambda: (
            admin.describe_scram_credentials([name]).errors.get(name) is not None
            and admin.describe_scram_credentials([name]).errors[name].code is ErrorCode.RESOURCE_NOT_FOUND
        )
    )


def test_too_few_rounds_are_refused(admin: Admin, name: str) -> None:
    weak = [ScramCredential(name, ScramMechanism.SCRAM_SHA_256, "secret", iterations=2)]
    code = refusal(lambda: admin.alter_scram_credentials(weak).check())
    assert code in NOT_HERE | {ErrorCode.UNACCEPTABLE_CREDENTIAL}


def test_tokens_are_for_those_who_logged_in(admin: Admin) -> None:
    for call in (
        admin.create_delegation_token,
        admin.describe_delegation_tokens,
        lambda: admin.renew_delegation_token(b"hmac"),
        lambda: admin.expire_delegation_token(b"hmac"),
    ):
        assert refusal(call) in NOT_HERE
