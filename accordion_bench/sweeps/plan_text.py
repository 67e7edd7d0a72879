"""A plan as a person reads it. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accordion_bench.runs.progress import human_count, human_time

if TYPE_CHECKING:
    from accordion_bench.sweeps.plan import Course, Plan


def render(plan: Plan) -> str:
    """The plan as a person reads it."""
    lines = [plan.title, f"{plan.parameters:,} parameters, {plan.batches_per_epoch} batches per worker and epoch", ""]
    several = len({rung.batch_multiple for rung in plan.rungs}) > 1
    for rung in plan.rungs:
        which = f"level {rung.level:g}" + (f", batch x{rung.batch_multiple}" if several else "")
        calls = f"{rung.collectives_per_update} collective{'s' * (rung.collectives_per_update != 1)}"
        sent = human_count(rung.updates_per_epoch * rung.floats_per_update)
        lines.append(
            f"{which}: {rung.floats_per_update:,.0f} floats per worker and update in {calls}; an epoch of "
            f"{rung.updates_per_epoch} sends {sent}, {duration(rung.communication_seconds_per_epoch)} of communication"
        )
    lines += ["", *_courses(plan), f"communication is modelled on network {plan.network}, nothing overlapping", ""]
    total = sum(plan.memory_bytes.values())
    parts = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in plan.memory_bytes.items() if size)
    lines.append(f"memory of a worker, besides data and activations: {total / 2**20:,.0f} MiB ({parts})")
    return "\n".join(lines)


def _courses(plan: Plan) -> list[str]:
    about = "about " if plan.estimated else ""
    if plan.calm == plan.restless:
        return [f"the run: {about}{_line(plan.calm)}" + ("" if plan.estimated else " (exactly)")]
    return [
        "the run depends on the gradients:",
        f"  if they never change fast:   {about}{_line(plan.calm)}",
        f"  if they always change fast:  {about}{_line(plan.restless)}",
    ]


def _line(course: Course) -> str:
    return (
        f"{human_count(course.floats_per_worker)} floats per worker, {course.updates:,} updates in {course.epochs} "
        f"epochs, {course.collectives:,} collectives, {duration(course.communication_seconds)} of communication"
    )


def duration(seconds: float) -> str:
    """As human_time, but what takes less than ten seconds keeps two digits."""
    return human_time(seconds) if seconds >= 9.95 or seconds == 0 else f"{seconds:.2g} s"
