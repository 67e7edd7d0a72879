"""One whole compression step on ResNet-18's gradients, ours beside peers, in one process tree on one thread.

    python benchmarks/bench_compress_step.py [--repeats 7]

Peers: PyTorch's powerSGD_hook under DistributedDataParallel with one gloo process, the hook's own time on one bucket
with all gradients; and, for Top-K, torch.topk's exact selection alone, which is only a part of our step. Prints
medians, ratios to the peer, machine, threads and versions.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from accordion_bench.compressors import build_compressor
from accordion_bench.runs.environment import _processor
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout
from accordion_bench.workloads.models import build_model

RANKS = (1, 2, 4)
FRACTIONS = (0.01, 0.1, 0.99)
FACTS = {"kind": "image", "channels": 3, "size": 32, "classes": 10}


def median_ms(step: Callable[[], object], repeats: int) -> float:
    """Median of wall times in milliseconds, after two steps that do not count."""
    times = []
    for number in range(repeats + 2):
        start = time.perf_counter()
        step()
        if number >= 2:
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def ours(layout: Layout, gradient_N: torch.Tensor, name: str, level: float, repeats: int) -> float:
    """A step with error feedback through Aggregator, one worker."""
    compressor = build_compressor(name, layout, 1, error_feedback=True, settings={})
    compressor.set_levels([level] * len(layout.layers))
    aggregator, communicator = Aggregator(compressor), Communicator(1)
    buffer_HN = gradient_N.clone().unsqueeze(0)

    def step() -> None:
        aggregator.reduce(buffer_HN, communicator)

    return median_ms(step, repeats)


def ddp_hook(model: torch.nn.Module, hook: Callable[..., object], state: object, repeats: int) -> float:
    """The hook's own time on a bucket with all gradients, as DDP calls it."""
    spent: list[float] = []

    def timed(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        start = time.perf_counter()
        future = hook(state, bucket)
        future.wait()
        spent.append(1000 * (time.perf_counter() - start))
        return future

    wrapped = DistributedDataParallel(model, bucket_cap_mb=1000)
    wrapped.register_comm_hook(state, timed)
    loss_input = torch.randn(2, 3, 32, 32)
    for _ in range(repeats + 4):
        wrapped.zero_grad(set_to_none=True)
        wrapped(loss_input).square().sum().backward()
    return statistics.median(spent[4:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build_model("resnet18", FACTS, {})
    layout = Layout.of(model)
    gradient_N = torch.randn(layout.size)
    copy = median_ms(lambda: gradient_N.clone(), repeats)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{_processor()}, {os.cpu_count()} cores, 1 thread, {versions}")
    print(f"ResNet-18, {layout.size:,} elements; one copy of all gradients {copy:.1f} ms; medians of {repeats} steps\n")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        dense = ddp_hook(build_model("resnet18", FACTS, {}), default_hooks.allreduce_hook, None, repeats)
        print(f"{'step':<22}{'ours (ms)':>12}{'peer (ms)':>12}{'peer / ours':>13}   peer")
        for rank in RANKS:
            state = powerSGD_hook.PowerSGDState(None, rank, 2, orthogonalization_epsilon=1e-8)
            peer = ddp_hook(build_model("resnet18", FACTS, {}), powerSGD_hook.powerSGD_hook, state, repeats)
            mine = ours(layout, gradient_N, "powersgd", rank, repeats)
            print(f"PowerSGD rank {rank:<8}{mine:>12.1f}{peer:>12.1f}{peer / mine:>12.2f}x   DDP powerSGD_hook")
        dist.destroy_process_group()
    for fraction in FRACTIONS:
        mine = ours(layout, gradient_N, "topk", fraction, repeats)
        kept = [max(1, int(fraction * slot.size)) for slot in layout.layers]
        parts = [gradient_N[slot.start : slot.stop].abs() for slot in layout.layers]
        peer = median_ms(lambda: [part.topk(k, sorted=False) for part, k in zip(parts, kept, strict=True)], repeats)  # noqa: B023
        name = f"Top-K {100 * fraction:g} %"
        print(f"{name:<22}{mine:>12.1f}{peer:>12.1f}{peer / mine:>12.2f}x   torch.topk, selection alone")
    print(f"\nplain all-reduce hook of DDP: {dense:.1f} ms")


if __name__ == "__main__":
    main()
