"""Mean, gather and the rest give the same everywhere, in every placement of the workers, and are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from processes import run_processes
from torch import Tensor

from accordion_bench.training.communicator import Communicator

PLACEMENTS = [(1, 1), (1, 4), (2, 2), (4, 1), (3, 1), (1, 3)]  # processes x hosted
X = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _everything(process: int, processes: int, hosted: int) -> dict[str, Any]:
    communicator = Communicator(hosted, process, processes)
    workers = communicator.hosted_workers
    own_H = X[workers.start : workers.stop].clone()
    before_H = own_H.clone()
    results: dict[str, Any] = {
        "workers": list(workers),
        "mean": communicator.mean(own_H),
        "transposed": communicator.mean(own_H.mT),
        "sliced": communicator.mean(own_H[:, :, 1:3]),
        "sum": communicator.sum(own_H),
        "integers": communicator.sum((own_H > 0).to(torch.int32)),
        "max": communicator.max(own_H),
        "gather": communicator.gather(own_H),
        "gather_integers": communicator.gather((10 * own_H).to(torch.int32).mT),
        "broadcast": communicator.broadcast(own_H[0].clone()),
        "total": communicator.total(torch.tensor([float(process)])),
        "first": communicator.from_first({"a": own_H[0].clone(), "n": torch.tensor(process)}),
        "objects": communicator.objects(f"p{process}"),
        "collect": communicator.collect(process),
        "unchanged": torch.equal(own_H, before_H),
    }
    communicator.barrier()
    results["traffic"] = communicator.traffic.as_dict()
    results["nan"] = communicator.max(torch.where(torch.arange(4)[workers.start : workers.stop] == 2, torch.nan, 1.0))
    return results


@pytest.mark.parametrize(("processes", "hosted"), PLACEMENTS)
def test_every_placement_agrees_with_one_tensor_of_all_workers(processes: int, hosted: int) -> None:
    workers = processes * hosted
    answers = run_processes(processes, _everything, hosted)
    x_A = X[:workers]
    assert [worker for answer in answers for worker in answer["workers"]] == list(range(workers))
    expected: dict[str, Tensor] = {
        "mean": x_A.mean(0),
        "transposed": x_A.mean(0).T,
        "sliced": x_A.mean(0)[:, 1:3],
        "sum": x_A.sum(0),
        "integers": (x_A > 0).sum(0).to(torch.int32),
        "max": x_A.amax(0),
        "gather": x_A,
        "gather_integers": (10 * x_A).to(torch.int32).mT,
        "broadcast": x_A[0],
        "total": torch.tensor([float(sum(range(processes)))]),
    }
    exact = {"integers", "max", "gather", "gather_integers", "broadcast", "total"}
    for process, answer in enumerate(answers):
        for name, value in expected.items():
            tolerance = 0.0 if name in exact or workers < 3 else 1e-15
            torch.testing.assert_close(answer[name], value, rtol=0, atol=tolerance, msg=f"{name} in process {process}")
            assert torch.equal(answer[name], answers[0][name]), f"{name} differs between processes"
        assert torch.equal(answer["first"]["a"], x_A[0])
        assert int(answer["first"]["n"]) == 0
        assert answer["objects"] == [f"p{i}" for i in range(processes)]
        assert answer["collect"] == (list(range(processes)) if process == 0 else None)
        assert answer["unchanged"]
        assert float(answer["nan"]) == (1.0 if workers <= 2 else torch.inf)


@pytest.mark.parametrize(("processes", "hosted"), [(1, 4), (4, 1), (2, 2)])
def test_the_meter_counts_what_one_worker_hands_over_in_any_placement(processes: int, hosted: int) -> None:
    for answer in run_processes(processes, _everything, hosted):
        # mean, transposed, sliced (6 of 15), sum, max in float64; integers in int32
        assert answer["traffic"]["mean"] == {"calls": 6, "elements": 15 * 5 + 6, "bytes": 8 * (15 * 4 + 6) + 4 * 15}
        assert answer["traffic"]["gather"] == {"calls": 2, "elements": 30, "bytes": 8 * 15 + 4 * 15}
        assert answer["traffic"]["control"] == {"calls": 1, "elements": 15, "bytes": 8 * 15}
