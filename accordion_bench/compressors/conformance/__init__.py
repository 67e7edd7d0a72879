"""Whether a compressor or a scheduler, yours or a registered one, keeps the promises that everything else relies on.

    from accordion_bench.compressors.conformance import check_compressor, failures

    def test_mine():
        assert not failures(check_compressor("my_module:MyCompressor"))

No torch until a compressor is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from accordion_bench.compressors.conformance.promise import Broken
from accordion_bench.errors import UserError

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Finding:
    """The outcome of one claim.

    Attributes:
        claim: what was promised.
        passed: whether it holds.
        detail: what went wrong, on one line; empty where it holds.
    """

    claim: str
    passed: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"ok      {self.claim}" if self.passed else f"FAILED  {self.claim}: {self.detail}"


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """Those that did not pass."""
    return [finding for finding in findings if not finding.passed]


def check_compressor(
    name: str,
    *,
    levels: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 1,
) -> list[Finding]:
    """Every claim about compressors, checked on this one with random and degenerate gradients; a second or two.

    Args:
        name: a registered name, or "module:Class" with a class attribute `ladder`.
        levels: levels to use, most compressed first; by default a few that its ladder allows.
        settings: its own settings.
        shapes: parameter name -> shape of the model to check it on; by default a few small and degenerate ones.
        seed: of the gradients and of the run.

    Raises:
        UserError: the class cannot be found or built at all, or the levels are not on its ladder.
    """
    from accordion_bench.compressors.conformance.compressor_promises import CLAIMS, subject

    return _examine(CLAIMS, subject(name, levels, dict(settings or {}), shapes, seed))


def check_scheduler(name: str, *, settings: Mapping[str, Any] | None = None) -> list[Finding]:
    """Every claim about schedulers, checked on this one over several invented runs.

    Args:
        name: a registered name, or "module:Class".
        settings: its own settings; needed where it has some without a default.

    Raises:
        UserError: the class cannot be found or built at all.
    """
    from accordion_bench.compressors.conformance.scheduler_promises import CLAIMS, subject

    return _examine(CLAIMS, subject(name, dict(settings or {})))


def _examine(claims: Mapping[str, Callable[[Subject], None]], subject: Subject) -> list[Finding]:
    findings = []
    for claim, check in claims.items():
        try:
            check(subject)
        except Broken as broken:
            findings.append(Finding(claim, False, str(broken)))
        except Exception as error:  # the code under examination may do anything
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            findings.append(Finding(claim, False, " ".join(f"{kind}{error}".split())))
        else:
            findings.append(Finding(claim, True))
    return findings
