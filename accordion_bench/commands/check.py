"""accordion-bench check: whether a compressor or scheduler, yours or a registered one, keeps its promises."""

from __future__ import annotations

from accordion_bench.commands.arguments import Parser
from accordion_bench.errors import RunFailure, UserError

EXAMPLES = """\
  accordion-bench check powersgd
  accordion-bench check my_methods:LeadingPart
  accordion-bench check my_methods:Alternate period=5
In your own tests: from accordion_bench.compressors.conformance import check_compressor, failures
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    description = "Runs the conformance suite on a compressor or scheduler; exit code 1 if it breaks a promise."
    parser = Parser("check", description, EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="a registered name, or your own module:Class")
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE", help="its own settings")
    options = parser.parse_args(arguments)

    from accordion_bench.compressors.conformance import check_compressor, check_scheduler, failures

    check = check_scheduler if _is_scheduler(options.name) else check_compressor
    findings = check(options.name, settings=_settings(options.settings))
    for finding in findings:
        print(finding)
    broken = failures(findings)
    if broken:
        raise RunFailure(f"{options.name} breaks {len(broken)} of {len(findings)} promises")
    print(f"{options.name} keeps all {len(findings)} promises")
    return 0


def _is_scheduler(name: str) -> bool:
    """Whether a name means a scheduler; UserError if it means neither."""
    from accordion_bench.compressors import COMPRESSORS
    from accordion_bench.plugins import closest, load_object
    from accordion_bench.schedulers import SCHEDULERS
    from accordion_bench.schedulers.base import Scheduler

    if ":" not in name:
        known = [*COMPRESSORS, *SCHEDULERS]
        if name not in known:
            hint = closest(name, known) or ";"
            raise UserError(f"no compressor or scheduler {name!r}{hint} there are: {', '.join(known)}")
        return name in SCHEDULERS
    kind = load_object(name, "NAME")
    return isinstance(kind, type) and issubclass(kind, Scheduler)


def _settings(words: list[str]) -> dict[str, object]:
    """KEY=VALUE words, values read as YAML."""
    from accordion_bench.config.plain_yaml import NotYaml, load_yaml

    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UserError(f"settings are written SETTING=VALUE, got {word!r}; see accordion-bench check --help")
        try:
            settings[key] = load_yaml(value)
        except NotYaml:
            raise UserError(f"the value of {key} cannot be read, got {value!r}; write it as in YAML") from None
    return settings
