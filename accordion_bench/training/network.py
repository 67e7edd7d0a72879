"""Traffic -> seconds: the alpha-beta model of a ring. No torch.

A ring of A workers needs 2 (A-1) messages for an all-reduce of b bytes and A-1 for an all-gather of b bytes per worker:

    all-reduce   2 (A-1) alpha + 2 (A-1)/A * 8 b / bandwidth
    all-gather     (A-1) alpha +   (A-1)   * 8 b / bandwidth

alpha is the seconds of one message between neighbours, so that one all-reduce among 4 workers costs 6 alpha before the
first byte counts. The form is that of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
Operations in MPICH" (2005); NCCL's own cost model (src/graph/tuning.cc) counts ring steps in the same way.

Sources of the named networks (bandwidths are the link's nominal rate in one direction):

    paper            Agarwal et al. 2021, Sec. 5.1: four p3.2xlarge, up to 10 Gbit/s by the vendor's list. alpha is
                     fitted: the times of Tables 5 and 6 leave about 1.2 ms per all-reduce among 4 workers beside the
                     bytes at 10 Gbit/s, which is 6 alpha = 1.2 ms.
    ethernet_1g, ethernet_10g, ethernet_25g
                     rates of IEEE 802.3ab, 802.3ae and 802.3by; alpha is a nominal one-way TCP message through the
                     operating system, tens of microseconds: measure your own with a ping-pong and put it in its place.
    infiniband_100g  EDR, 4 lanes of 25 Gbit/s; alpha is NCCL's ring step over a network (Simple protocol), 9.6 us.
    nvlink           third generation (A100), 300 GB/s per GPU in each direction; alpha is NCCL's ring step over NVLink
                     (Simple protocol), 3.4 us.
"""

from __future__ import annotations

from dataclasses import dataclass

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest
from accordion_bench.training.traffic import Count, Traffic

BITS_PER_BYTE = 8


@dataclass(frozen=True)
class Network:
    """What the alpha-beta model needs.

    Attributes:
        name: what it is called on the command line.
        alpha_seconds: one message between neighbours in the ring, without its bytes.
        bandwidth_bits_per_s: of one link, in one direction.
        description: a few words for people.
    """

    name: str
    alpha_seconds: float
    bandwidth_bits_per_s: float
    description: str

    def __post_init__(self) -> None:
        if not 0 <= self.alpha_seconds < float("inf"):
            raise UserError(
                f"network.alpha_seconds must be a number >= 0, got {self.alpha_seconds}; use 0.0002 for 0.2 ms"
            )
        if not 0 < self.bandwidth_bits_per_s < float("inf"):
            given = self.bandwidth_bits_per_s
            raise UserError(f"network.bandwidth_bits_per_s must be a number > 0, got {given}; use 1e10 for 10 Gbit/s")


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network("paper", 2.0e-4, 1e10, "4 x p3.2xlarge: 1.2 ms per all-reduce among 4 workers, 10 Gbit/s"),
        Network("ethernet_1g", 5.0e-5, 1e9, "1 Gbit/s Ethernet, 50 us per message"),
        Network("ethernet_10g", 3.0e-5, 1e10, "10 Gbit/s Ethernet, 30 us per message"),
        Network("ethernet_25g", 2.5e-5, 2.5e10, "25 Gbit/s Ethernet, 25 us per message"),
        Network("infiniband_100g", 9.6e-6, 1e11, "100 Gbit/s InfiniBand EDR, 9.6 us per message"),
        Network("nvlink", 3.4e-6, 2.4e12, "NVLink, 300 GB/s per direction, 3.4 us per message"),
    )
}


def find_network(name: str) -> Network:
    """The network of that name; UserError if there is none."""
    if name not in NETWORKS:
        raise UserError(f"no network {name!r}{closest(name, list(NETWORKS)) or ';'} there are: {', '.join(NETWORKS)}")
    return NETWORKS[name]


def all_reduce_seconds(count: Count, workers: int, network: Network) -> float:
    """Seconds of these all-reduces among `workers` in a ring; count.bytes is what one worker hands in."""
    messages = 2 * (workers - 1)
    return _seconds(count.calls * messages, count.bytes * messages / workers, network)


def all_gather_seconds(count: Count, workers: int, network: Network) -> float:
    """Seconds of these all-gathers among `workers` in a ring; count.bytes is what one worker hands in."""
    messages = workers - 1
    return _seconds(count.calls * messages, count.bytes * messages, network)


def seconds(traffic: Traffic, workers: int, network: Network) -> float:
    """Seconds that the gradient traffic of one worker takes when nothing overlaps it.

    `mean` counts as all-reduces and `gather` as all-gathers; control traffic is left out, as in `floats_per_worker`.
    One worker communicates with nobody: 0 seconds.

    Args:
        traffic: of one worker, over a step, an epoch or a run (the model is linear in it).
        workers: A >= 1.
        network: alpha and bandwidth.
    """
    return all_reduce_seconds(traffic.mean, workers, network) + all_gather_seconds(traffic.gather, workers, network)


def _seconds(messages: int, link_bytes: float, network: Network) -> float:
    return messages * network.alpha_seconds + link_bytes * BITS_PER_BYTE / network.bandwidth_bits_per_s
