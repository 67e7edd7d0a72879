"""The schedulers, one algorithm a file, and their registry by name: from an epoch's statistics to the next one's
levels. May import nothing but errors and plugins. No torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from accordion_bench.errors import UserError
from accordion_bench.plugins import check_settings, closest, load_object, load_own
from accordion_bench.schedulers.base import Scheduler

SCHEDULERS: dict[str, str] = {
    "accordion": "accordion_bench.schedulers.accordion:Accordion",
    "adabatch": "accordion_bench.schedulers.adabatch:AdaBatch",
    "adaqs": "accordion_bench.schedulers.adaqs:AdaQS",
    "auto_ladder": "accordion_bench.schedulers.auto_ladder:AutoLadder",
    "budget": "accordion_bench.schedulers.budget:Budget",
    "hessian": "accordion_bench.schedulers.hessian:HessianDetector",
    "lgreco": "accordion_bench.schedulers.lgreco:LGreCo",
    "manual": "accordion_bench.schedulers.manual:Manual",
    "smith": "accordion_bench.schedulers.smith:Smith",
    "static": "accordion_bench.schedulers.static:Static",
}
STATISTICS = ("local", "aggregated")


def find_scheduler(name: str) -> type[Scheduler]:
    """The class of a registered name or of a user's own "module:Class"; UserError if there is none."""
    if ":" not in name and name not in SCHEDULERS:
        near = closest(name, list(SCHEDULERS))
        raise UserError(f"no scheduler {name!r}{near}{'' if near else ';'} there are: {', '.join(SCHEDULERS)}")
    load = load_own if ":" in name else load_object
    kind = load(SCHEDULERS.get(name, name), "scheduler.name")
    if not (inspect.isclass(kind) and issubclass(kind, Scheduler)) or inspect.isabstract(kind):
        raise UserError(
            f"scheduler.name {name!r} must be a class derived from accordion_bench.schedulers.base.Scheduler that "
            "defines start and decide"
        )
    return kind


def build_scheduler(name: str, settings: Mapping[str, Any], statistic: str = "local") -> Scheduler:
    """The scheduler with its settings checked against its constructor's keyword-only arguments.

    Args:
        name: a key of SCHEDULERS or "module:Class".
        settings: its own keys.
        statistic: "local" or "aggregated", see Scheduler.statistic.

    Raises:
        UserError: on an unknown name, statistic or key, a missing key, a value of another type or out of range.
    """
    kind = find_scheduler(name)
    if statistic not in STATISTICS:
        raise UserError(f"statistic must be {' or '.join(STATISTICS)}, got {statistic!r}; the paper's is local")
    checked = check_settings(kind, settings, "scheduler")
    for key, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty and key not in checked:
            raise UserError(f"scheduler {name} needs the setting {key}; write scheduler.{key}=...")
    scheduler = kind(**checked)
    scheduler.statistic = statistic
    return scheduler
