"""One client, whatever it sends, does not stop the node: a well-behaved client beside it is answered, in little memory.

On a machine that others use time means little, so `make test` has the quick probes with a bound that a calm run of the
same client sets; `make abuse` has all of them with the bound of a machine at rest.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.abuse.every import wide_requests
from tests.abuse.probe import PREPARE, QUICK, SECURED, SLOW, Probe
from tests.abuse.served import BYTES_MAX, KEPT_MIN, SECONDS_MAX, Served, drain_frame, good_client, send

_CALM_ANSWERS = 60
#: The elements of a wide request.
_MANY = 50_000
#: On a machine that others use. Before slices, turns and bounds the same probes took seconds to minutes at rest.
_TIMES_CALM, _BUSY_SECONDS_MAX = 10, 2.0


class Cost(NamedTuple):
    """Seconds of the good client's slowest answers, the share of its rate that it keeps, the node's bytes."""

    calm: float
    worst: float
    kept: float
    peak: int


def attacked(probe: Probe) -> Cost:
    """Run the probe beside the good client."""
    if probe in PREPARE:
        PREPARE[probe]()
    with Served(secured=probe in SECURED) as served:
        with good_client(served) as calm:
            calm.wait_for(_CALM_ANSWERS)
            calm_rate = calm.rate()
        with good_client(served) as beside:
            probe(served, beside)
            rate = beside.rate()
            beside.wait_for(_CALM_ANSWERS)
        return Cost(calm.worst, beside.worst, rate / calm_rate, served.peak_bytes())


def named(probe: Probe) -> str:
    return probe.__name__


@pytest.mark.parametrize("probe", QUICK, ids=named)
def test_a_quick_probe_costs_others_little(probe: Probe) -> None:
    calm, worst, _, peak = attacked(probe)
    assert worst < _BUSY_SECONDS_MAX + _TIMES_CALM * calm, f"{worst:.3f} s beside the attack, {calm:.3f} s in calm"
    assert peak < BYTES_MAX, f"{peak >> 20} MiB"


@pytest.mark.abuse
@pytest.mark.parametrize("probe", [*QUICK, *SLOW], ids=named)
def test_a_probe_costs_others_less_than_a_quarter_of_a_second(probe: Probe) -> None:
    calm, worst, kept, peak = attacked(probe)
    slowest = f"calm {calm * 1000:.0f} ms, beside the attack {worst * 1000:.0f} ms"
    print(f"{probe.__name__}: {slowest}, {kept:.0%} of its rate, {peak >> 20} MiB")
    assert kept >= KEPT_MIN, f"the good client kept {kept:.0%} of its rate"
    assert worst < SECONDS_MAX, f"{worst:.3f} s beside the attack, {calm:.3f} s in calm"
    assert peak < BYTES_MAX, f"{peak >> 20} MiB"


@pytest.mark.abuse
@pytest.mark.timeout(1200)
def test_a_wide_request_of_any_api_costs_others_less_than_a_quarter_of_a_second() -> None:
    slow: dict[str, str] = {}
    with Served() as served, good_client(served) as beside:
        for name, request in wide_requests(_MANY):
            before = len(beside.seconds)
            with served.raw() as sock:
                send(sock, request)
                drain_frame(sock)
            beside.wait_for(3)
            worst = max(beside.seconds[before:])
            print(f"{name}: {worst * 1000:.0f} ms")
            if worst >= SECONDS_MAX:
                slow[name] = f"{worst:.3f} s"
    assert not slow
