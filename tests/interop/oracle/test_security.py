"""SASL, ACLs, tokens and credentials on a node without authentication; voters and registrations of a single node."""

from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side

CLUSTER = "Ottla-Interop-Cluster1"
DIRECTORY = bytes(range(16))


@pytest.mark.parametrize("version", [0, 1])
def test_sasl_comes_too_late_on_a_plaintext_listener(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        side.ask("SaslHandshake", version, mechanism="PLAIN")
        side.ask("SaslAuthenticate", version, auth_bytes=b"\0a\0b")
        side.ask("SaslAuthenticate", 2, auth_bytes=b"")

    oracle.compare(script)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_need_an_authorizer(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        wanted: dict[str, Any] = {
            "resource_type_filter": 2,
            "pattern_type_filter": 3,
            "operation": 1,
            "permission_type": 1,
        }
        entry = {
            "resource_type": 2,
            "resource_name": "t",
            "principal": "User:a",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        for change in ({}, {"operation": 15}, {"operation": 16}, {"resource_type_filter": 0}, {"permission_type": 0}):
            side.ask("DescribeAcls", version, **{**wanted, **change})
            side.ask("DeleteAcls", version, filters=[wanted, {**wanted, **change}])
        for unknown in (None, "operation", "resource_type", "permission_type", "resource_pattern_type"):
            change = {} if unknown is None else {unknown: 0}
            side.ask("CreateAcls", version, creations=[entry, {**entry, **change}])
        side.ask("CreateAcls", version, creations=[{**entry, "principal": "", "host": "", "resource_name": ""}])
        side.ask("CreateAcls", version, creations=[])

    oracle.compare(script)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tokens_need_authentication(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        side.ask("CreateDelegationToken", version, renewers=[{"principal_type": "User", "principal_name": "r"}])
        if version >= 3:
            owner: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "somebody"}
            side.ask("CreateDelegationToken", version, **owner)
        side.ask("RenewDelegationToken", min(version, 2), hmac=b"h")
        side.ask("ExpireDelegationToken", min(version, 2), hmac=b"h")
        side.ask("DescribeDelegationToken", version, owners=None)
        side.ask("DescribeDelegationToken", version, owners=[{"principal_type": "User", "principal_name": "r"}])

    oracle.compare(script)


def test_scram_credentials_are_kept_and_described(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        def alter(**changes: Any) -> None:
            reply = side.ask("AlterUserScramCredentials", 0, note=False, **changes)
            reply.results.sort(key=lambda one: one.user)
            side.note("AlterUserScramCredentials", reply)

        def described(*users: str) -> None:
            reply = side.ask("DescribeUserScramCredentials", 0, note=False, users=[{"name": user} for user in users])
            reply.results.sort(key=lambda one: one.user)
            if not users:
                reply.results = [one for one in reply.results if one.user.startswith(name)]
            for result in reply.results:
                result.credential_infos.sort(key=lambda one: one.mechanism)
            side.note("DescribeUserScramCredentials", reply)

        def credential(user: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
            return {
                "name": user,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": b"salt",
                "salted_password": b"salted",
            }

        # Apache forgets a user who is set in the same request in which the last other one of the mechanism goes.
        alter(upsertions=[credential(name), credential(name + "-stays")])
        alter(upsertions=[credential(name, 2, 8192), credential(name + "-few", iterations=4095)])
        alter(upsertions=[credential(name + "-many", iterations=16385), credential(name + "-what", 3), credential("")])
        alter(upsertions=[credential(name + "-twice"), credential(name + "-twice", 2)])
        alter(deletions=[{"name": name + "-nobody", "mechanism": 1}, {"name": name, "mechanism": 7}])
        side.settle()
        described(name)
        described(name, name + "-nobody", name + "-twice")
        described(name, name)
        described()
        alter(deletions=[{"name": name, "mechanism": 1}], upsertions=[credential(name)])
        alter(deletions=[{"name": name, "mechanism": 1}], upsertions=[credential(name + "-other")])
        side.settle()
        described(name, name + "-other")

    oracle.compare(script)


@pytest.mark.parametrize("version", [0, 1])
def test_a_single_node_gets_and_loses_no_voters(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        def add(cluster: str | None = CLUSTER, voter: int = 5, directory: bytes = DIRECTORY, *listeners: str) -> None:
            where = [{"name": one, "host": "127.0.0.1", "port": 1} for one in listeners]
            values: dict[str, Any] = {
                "cluster_id": cluster,
                "voter_id": voter,
                "voter_directory_id": directory,
                "listeners": where,
            }
            side.ask("AddRaftVoter", version, timeout_ms=1000, **values)

        add("other")
        add(None, directory=bytes(16))
        add(voter=-1)
        add()
        add(CLUSTER, 5, DIRECTORY, "OTHER")
        add(CLUSTER, 1, DIRECTORY, "CONTROLLER")
        add(CLUSTER, 5, DIRECTORY, "CONTROLLER")
        for cluster, voter, directory in (
            ("other", 5, DIRECTORY),
            (CLUSTER, -1, DIRECTORY),
            (CLUSTER, 1, bytes(16)),
            (None, 5, DIRECTORY),
            (CLUSTER, 1, DIRECTORY),
        ):
            side.ask("RemoveRaftVoter", 0, cluster_id=cluster, voter_id=voter, voter_directory_id=directory)

    oracle.compare(script)


def test_a_broker_that_is_not_there_is_not_unregistered(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        side.ask("UnregisterBroker", 0, broker_id=77)
        side.ask("UnregisterBroker", 0, broker_id=-1)

    oracle.compare(script)
