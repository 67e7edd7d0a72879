"""The alpha-beta model of a ring, against closed forms and the paper's own times."""

from __future__ import annotations

import pytest

from accordion_bench.errors import UserError
from accordion_bench.training.network import NETWORKS, Network, find_network, seconds
from accordion_bench.training.traffic import Count, Traffic

SLOW = Network("slow", 0.001, 8e6, "1 ms, 1 MB/s")


def test_all_reduce_is_two_rounds_of_messages_and_of_parts():
    traffic = Traffic(mean=Count(calls=3, elements=0, bytes=4000))
    assert seconds(traffic, 4, SLOW) == pytest.approx(3 * 6 * 0.001 + 2 * 3 / 4 * 4000 / 1e6)


def test_all_gather_passes_every_contribution_to_everyone():
    traffic = Traffic(gather=Count(calls=2, elements=0, bytes=4000))
    assert seconds(traffic, 4, SLOW) == pytest.approx(2 * 3 * 0.001 + 3 * 4000 / 1e6)


def test_one_worker_waits_for_nobody():
    assert seconds(Traffic(mean=Count(5, 10, 40), gather=Count(5, 10, 40)), 1, SLOW) == 0


def test_control_traffic_is_not_gradient_traffic():
    assert seconds(Traffic(control=Count(5, 10, 40)), 4, SLOW) == 0


def test_a_sum_of_traffic_takes_the_sum_of_seconds():
    a, b = Traffic(mean=Count(1, 2, 8), gather=Count(3, 4, 16)), Traffic(mean=Count(5, 6, 24))
    assert seconds(a + b, 4, SLOW) == pytest.approx(seconds(a, 4, SLOW) + seconds(b, 4, SLOW))


@pytest.mark.parametrize(
    ("dense_seconds", "large_batch_seconds"),
    [(5009, 1721), (5096, 1635)],  # ResNet-18 in Tables 5 and 6: batch 512 and 4096
)
def test_the_paper_network_explains_the_papers_times(dense_seconds: float, large_batch_seconds: float):
    """T(512) - T(4096) is (98 * 300 - 12 * 300) steps of sending ResNet-18's 62 tensors one by one."""
    per_step = (dense_seconds - large_batch_seconds) / (98 * 300 - 12 * 300)
    one_by_one = Traffic(mean=Count(62, 11_173_962, 4 * 11_173_962))
    assert seconds(one_by_one, 4, NETWORKS["paper"]) == pytest.approx(per_step, rel=0.06)


def test_faster_networks_are_faster():
    traffic = Traffic(mean=Count(2, 82_260, 4 * 82_260))
    times = [seconds(traffic, 4, NETWORKS[name]) for name in ("ethernet_1g", "ethernet_10g", "ethernet_25g")]
    assert times == sorted(times, reverse=True)
    assert seconds(traffic, 4, NETWORKS["nvlink"]) < seconds(traffic, 4, NETWORKS["infiniband_100g"]) < times[-1]


def test_networks_are_found_by_name():
    assert all(find_network(name).name == name for name in NETWORKS)
    with pytest.raises(UserError, match="did you mean ethernet_10g"):
        find_network("ethernet_10")


@pytest.mark.parametrize(
    ("alpha", "bandwidth", "setting"),
    [(-1, 1e9, "alpha"), (float("nan"), 1e9, "alpha"), (0, 0, "bandwidth"), (0, float("inf"), "bandwidth")],
)
def test_an_impossible_network_is_refused(alpha: float, bandwidth: float, setting: str):
    with pytest.raises(UserError, match=f"network.{setting}"):
        Network("mine", alpha, bandwidth, "")
