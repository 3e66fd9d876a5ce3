"""Parses two arguments of `kafka-storage format`: the first voters and the first SCRAM credentials.

    id@host:port:directory-id,...                                            --initial-controllers
    SCRAM-SHA-256=[name=alice,password=alice-secret]                         --add-scram
    SCRAM-SHA-512=[name=ann,iterations=8192,salt="BASE64",saltedpassword="BASE64"]

KIPs: 853 voters, 900 credentials.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Iterable

from ottla.controller.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_record
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid, parse_uuid
from ottla.kernel.ports import Rng
from ottla.raft.checkpoint import VoterEndpoint, VoterNode
from ottla.raft.role import Voter
from ottla.wire.record.security import UserScramCredentialRecord

_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_DIGESTS = {1: "sha256", 2: "sha512"}
_ITERATIONS = 4096
_SALT_BYTES = 32
_PORT_MAX = 65535


# ---- voters


def initial_voters(text: str, listener_name: str) -> tuple[VoterNode, ...]:
    """The voters in order of their ids, all at the controllers' listener."""
    nodes: dict[int, VoterNode] = {}
    for part in filter(None, text.strip().split(",")):
        node = _voter(part.strip(), listener_name)
        if node.voter.node_id in nodes:
            raise OttlaError(f"Node id {node.voter.node_id} was specified more than once.")
        nodes[node.voter.node_id] = node
    if not nodes:
        raise OttlaError("No voters given.")
    return tuple(nodes[node_id] for node_id in sorted(nodes))


def _voter(text: str, listener_name: str) -> VoterNode:
    before, at, rest = text.partition("@")
    if not at:
        raise OttlaError("No @ found in dynamic voter string.")
    if not before:
        raise OttlaError("Invalid @ at beginning of dynamic voter string.")
    node_id = _parse_int(before, "Failed to parse node id in dynamic voter string.")
    if node_id < 0:
        raise OttlaError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise OttlaError("No hostname found after node id.")
    host, rest = _host(rest)
    if not rest.startswith(":"):
        raise OttlaError("Port section must start with a colon.")
    digits, colon, directory = rest[1:].partition(":")
    if not colon:
        raise OttlaError("No colon following port could be found.")
    port = _parse_int(digits, "Failed to parse port in dynamic voter string.")
    if not 0 <= port <= _PORT_MAX:
        raise OttlaError(f"Invalid port {port} in dynamic voter string.")
    return VoterNode(Voter(node_id, _directory(directory)), (VoterEndpoint(listener_name, host, port),))


def _parse_int(text: str, why: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OttlaError(why) from None


def _host(text: str) -> tuple[str, str]:
    """(host, rest). An IPv6 address is in brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise OttlaError("Hostname began with left bracket, but no right bracket was found.")
        return host, rest
    host, colon, rest = text.partition(":")
    if not colon:
        raise OttlaError("No colon following hostname could be found.")
    return host, f":{rest}"


def _directory(text: str) -> Uuid:
    try:
        return parse_uuid(text)
    except ValueError:
        raise OttlaError("Failed to parse directory ID in dynamic voter string.") from None


# ---- credentials


def scram_records(arguments: Iterable[str], rng: Rng) -> list[UserScramCredentialRecord]:
    """The records of a new cluster's credentials. Defaults: a random salt, the usual number of iterations."""
    return [_credential(argument.strip(), rng) for argument in arguments]


def _credential(text: str, rng: Rng) -> UserScramCredentialRecord:
    name, equals, configuration = text.partition("=")
    if not equals:
        raise OttlaError(f"Failed to find equals sign in SCRAM argument '{text}'")
    if name not in _MECHANISMS:
        raise OttlaError(f"The add-scram mechanism {name} is not supported.")
    if not configuration.startswith("["):
        raise OttlaError("Expected configuration string to start with [")
    if not configuration.endswith("]"):
        raise OttlaError("Expected configuration string to end with ]")
    parts = dict(_component(each) for each in configuration[1:-1].split(","))
    user = parts.pop("name", None)
    if user is None:
        raise OttlaError("You must supply 'name' to add-scram")
    salt = _base64(parts["salt"], "salt") if "salt" in parts else None
    iterations = parts.pop("iterations", str(_ITERATIONS))
    count = _parse_int(iterations, f"Failed to parse iterations count: {iterations}")
    password, salted = parts.pop("password", None), parts.pop("saltedpassword", None)
    if password is None and salted is None:
        raise OttlaError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise OttlaError("You must supply 'salt' with 'saltedpassword' to add-scram")
    parts.pop("salt", None)
    if parts:
        raise OttlaError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    for bound, wrong, sign in (
        (ITERATIONS_MIN, count < ITERATIONS_MIN, ">="),
        (ITERATIONS_MAX, count > ITERATIONS_MAX, "<="),
    ):
        if wrong:
            shown = name.replace("-", "_")
            raise OttlaError(f"The 'iterations' value must be {sign} {bound} for add-scram using {shown}")
    if salt is None:
        salt = rng.randbytes(_SALT_BYTES)
    mechanism = _MECHANISMS[name]
    if password is not None:
        secret = hashlib.pbkdf2_hmac(_DIGESTS[mechanism], password.encode(), salt, count)
    else:
        secret = _base64(salted or "", "saltedPassword")
    return credential_record(user, mechanism, salt, secret, count)


def _component(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OttlaError(f"No equals sign found in SCRAM component: {text}")
    quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return name, value[1:-1] if quoted else value


def _base64(text: str, field: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise OttlaError(f"Failed to decode given {field}: {text}") from None
