"""What a broker says in SCRAM and must not: a client refuses it in words."""

import pytest

from ottla.security.scram import ScramRefused, scram


@pytest.mark.parametrize(
    "first",
    [
        "r=fykoours,s=\u0279salt,i=4096",
        "r=fykoours,s=c2FsdA==,i=" + "9" * 5000,
        "r=fykoours,s=c2FsdA==,i=9999999",
        "r=fyko,s=c2FsdA==,i=4096",
    ],
)
def test_a_broken_challenge_is_refused(first: str) -> None:
    client = scram("SCRAM-SHA-256", "ann", "secret", "fyko")
    next(client)
    with pytest.raises(ScramRefused):
        client.send(first.encode())


def test_a_proof_outside_of_ascii_is_refused() -> None:
    client = scram("SCRAM-SHA-256", "ann", "secret", "fyko")
    next(client)
    client.send(b"r=fykoours,s=c2FsdA==,i=4096")
    with pytest.raises(ScramRefused):
        client.send("v=\u0279".encode())
