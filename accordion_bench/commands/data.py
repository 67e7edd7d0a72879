"""accordion-bench data: which data sets are here; download or check one."""

from __future__ import annotations

from accordion_bench.commands.arguments import Parser

EXAMPLES = """\
  accordion-bench data                 what is here
  accordion-bench data cifar10         download it, or check what is there
  accordion-bench data cifar10 --root /datasets --no-verify
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("data", "Shows which data sets are here; downloads and checks those that are named.", EXAMPLES)
    parser.add_argument("names", nargs="*", metavar="DATASET", help="cifar10, cifar100, digits, wikitext2")
    parser.add_argument(
        "--root", default="data", metavar="DIR", help="where the data is (default: data), as dataset.root"
    )
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="accept files with other checksums, with a warning, as dataset.verify=false",
    )
    options = parser.parse_args(arguments)

    from accordion_bench.config.section import unknown
    from accordion_bench.workloads.datasets import DATASETS, describe, prepare

    for name in options.names:
        if name not in DATASETS:
            raise unknown("dataset", name, DATASETS)
    for name in options.names:
        print(prepare(name, options.root, not options.no_verify))
    if not options.names:
        for dataset in describe(options.root):
            print(f"{dataset.name:<10} {dataset.kind:<6} {dataset.state}")
    return 0
