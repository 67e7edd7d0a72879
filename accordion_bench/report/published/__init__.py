"""What the paper and its authors' logs say, as facts to compare with. No torch.

Sources: Agarwal et al., "Accordion: Adaptive Gradient Communication via Critical Learning Regime Identification",
MLSys 2021 (arXiv 2010.16248), Tables 1-10 and text; the per-epoch curves are those of the logs that the authors
published (one run per setting). The files lie in `published/` beside this module:

    tables.csv           Tables 1-6, as printed       (table, dataset, network, method, level, role, accuracy_pct, ...)
    runs.csv             which log belongs to which setting ("fig11" is the language model's Figure 11)
    curves.csv.gz        test loss and accuracy or perplexity after every epoch of those logs
    claims.csv           numbers stated in the text, each with a cross-check against the tables
    parameters.csv       parameter counts of Tables 8-10
    hyperparameters.csv  Table 7, beside what the published code does
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("table", "dataset", "network", "level")
SETS = ("tables.csv", "runs.csv", "curves.csv.gz", "claims.csv", "parameters.csv", "hyperparameters.csv")
UNITS = {"million": 1e6, "billion": 1e9}
PAPER_EPOCHS = {"CIFAR-10": 300, "CIFAR-100": 300, "WikiText-2": 90}


@dataclass(frozen=True)
class PublishedRow:
    """One published result.

    Attributes:
        table, dataset, network, level: its keys.
        metric: "accuracy" (percent) or "perplexity".
        value: the metric.
        text: the metric as printed.
        floats: the paper's Data Sent in 32-bit words over the whole run; None if not published.
        floats_text: the printed number, in `floats_unit`.
        floats_unit: 1e6 or 1e9; None if not published.
        seconds: the printed time of the run; None if not published.
        source: where it stands, in words.
    """

    table: str
    dataset: str
    network: str
    level: str
    metric: str
    value: float
    text: str
    floats: float | None
    floats_text: str | None
    floats_unit: float | None
    seconds: float | None
    source: str

    @property
    def epochs(self) -> int:
        """Epochs of the published run."""
        return PAPER_EPOCHS[self.dataset]


@cache
def _read(name: str) -> pd.DataFrame:
    import pandas as pd

    with as_file(files(__name__) / name) as path:
        return pd.read_csv(path, dtype=str, keep_default_na=False)


def data(name: str) -> pd.DataFrame:
    """A copy of one published set, every column as printed text; name is one of SETS. UserError if it is not."""
    if name not in SETS:
        raise UserError(f"no published data {name!r}{closest(name, SETS) or ';'} there are: {', '.join(SETS)}")
    return _read(name).copy()


def row(keys: Mapping[str, str | int]) -> PublishedRow:
    """The published result with these keys (table, dataset, network, level).

    For the language model (table "fig11") it is the last epoch of the published log, as no table prints it.

    Raises:
        UserError: if nothing was published under these keys; the message says which values there are.
    """
    wanted = _normal(keys)
    match = _select(_read("tables.csv"), wanted)
    if match is None:
        return _last_of_log(wanted)
    unit = UNITS[match["data_unit"]]
    return PublishedRow(
        **wanted,
        metric="accuracy",
        value=float(match["accuracy_pct"]),
        text=match["accuracy_pct"],
        floats=float(match["data_sent"]) * unit,
        floats_text=match["data_sent"],
        floats_unit=unit,
        seconds=float(match["time_s"]),
        source=f"Table {wanted['table']}",
    )


def curve(keys: Mapping[str, str | int]) -> pd.DataFrame:
    """The published learning curve: one line per epoch with columns epoch, loss (test) and accuracy or perplexity.

    Raises:
        UserError: if no log was published under these keys.
    """
    import pandas as pd

    run = _published_run(_normal(keys))
    curves = _read("curves.csv.gz")
    mine = curves[curves["run_id"] == run["run_id"]]
    metric = "accuracy" if mine["accuracy_pct"].iloc[0] else "perplexity"
    column = "accuracy_pct" if metric == "accuracy" else "perplexity"
    return pd.DataFrame(
        {
            "epoch": mine["epoch"].astype(int).to_numpy(),
            "loss": mine["test_loss"].astype(float).to_numpy(),
            metric: mine[column].astype(float).to_numpy(),
        }
    )


def _last_of_log(wanted: dict[str, str]) -> PublishedRow:
    run = _published_run(wanted)
    last = curve(wanted).iloc[-1]
    metric = str(last.index[-1])
    value = float(last[metric])
    source = f"the authors' log {run['source_log']}"
    return PublishedRow(
        **wanted,
        metric=metric,
        value=value,
        text=f"{value:.2f}",
        floats=None,
        floats_text=None,
        floats_unit=None,
        seconds=None,
        source=source,
    )


def _normal(keys: Mapping[str, str | int]) -> dict[str, str]:
    """The four keys as text; "Table 3" and 3 are the same table."""
    missing = [key for key in KEYS if key not in keys]
    if missing or len(keys) != len(KEYS):
        raise UserError(f"published must have the keys {', '.join(KEYS)}, got {', '.join(map(str, keys)) or 'none'}")
    wanted = {key: str(keys[key]) for key in KEYS}
    wanted["table"] = wanted["table"].removeprefix("Table ")
    return wanted


def _select(frame: pd.DataFrame, wanted: Mapping[str, str]) -> Mapping[str, str] | None:
    found = frame
    for key, value in wanted.items():
        found = found[found[key] == value]
    return None if found.empty else _first(found)


def _published_run(wanted: Mapping[str, str]) -> Mapping[str, str]:
    """The log of these keys; the error names the first key that matches nothing."""
    found = _read("runs.csv")
    for key, value in wanted.items():
        known = list(dict.fromkeys(found[key]))
        if value not in known:
            there = ", ".join(f"{name} {wanted[name]}" for name in KEYS[: KEYS.index(key)])
            where = f" with {there}" if there else ""
            given = f"published.{key} {value!r}{where}"
            raise UserError(
                f"nothing is published for {given}{closest(value, known) or ';'} there are: {', '.join(known)}"
            )
        found = found[found[key] == value]
    return _first(found)


def _first(found: pd.DataFrame) -> dict[str, str]:
    return {str(key): str(value) for key, value in found.iloc[0].items()}
