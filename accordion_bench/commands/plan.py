"""accordion-bench plan: what a run will send, before it starts."""

from __future__ import annotations

import json

from accordion_bench.commands.arguments import Parser

DESCRIPTION = """\
Says what a run will send in how many collectives, what it holds in memory, and how long its communication takes on the
network, before it starts: exactly what the meter counts later where the scheduler's decisions do not depend on the
data, else the two ends between which they lie. Takes the same settings as run.
"""
EXAMPLES = """\
  accordion-bench plan
  accordion-bench plan model=vgg19bn compressor.levels='[1, 4]' network=ethernet_1g
  accordion-bench plan compressor=topk scheduler=static --json
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("plan", DESCRIPTION, EXAMPLES)
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE", help="as for run")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_intermixed_args(arguments)

    from accordion_bench.config.compose import compose_values
    from accordion_bench.config.parsing import from_mapping

    config = from_mapping(compose_values(options.settings))

    from accordion_bench.sweeps.plan import make_plan
    from accordion_bench.sweeps.plan_text import render

    plan = make_plan(config)
    print(json.dumps(plan.as_dict(), indent=1) if options.json else render(plan))
    return 0
