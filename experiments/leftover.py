"""Which rate a kind of call reaches in whole steps, by what the others leave of the time.

    python -m experiments.leftover --fold N --weights FOLDER [--calls wide-depthwise]

Rows of families that the fold holds out (`python -m experiments.accuracy` keeps its network beside
its result): the predicted time of all other calls is taken from the measured one, and what is left
is the time of the chosen calls. Where these take a fair share and families agree, that is a rate of
the kernel; `prenet_gnn/network/wide.py` starts from such rates. A table is printed and nothing
written: it comes close to the measured rows, which stay out of this repository.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from experiments.shared.command import FOLDS, Option, Options, command
from prenet_gnn.errors import PreNetError

if TYPE_CHECKING:
    from prenet_gnn.encoding.encode import Encoded
    from prenet_gnn.training.fit import Fitted
    from prenet_gnn.training.rows import Rows

# Steps of which the chosen calls were measured or predicted to take less say nothing of them.
LEAST_SHARE = 0.05
KEYS = ["device", "mode", "channels_last", "compiled", "framework", "family"]


def _wide(columns: dict[str, np.ndarray]) -> np.ndarray:
    return (columns["is_depthwise"] > 0) & (columns["log_kernel"] > 7 * 7 + 0.5)


def _large(columns: dict[str, np.ndarray]) -> np.ndarray:
    taps = columns["log_kernel"]
    return (columns["is_depthwise"] > 0) & (taps > 5 * 5 + 0.5) & (taps < 7 * 7 + 0.5)


def _narrow(columns: dict[str, np.ndarray]) -> np.ndarray:
    return (columns["is_grouped"] > 0) & (columns["log_cols"] < 3.5)


CALLS = {"wide-depthwise": _wide, "large-depthwise": _large, "narrow-groups": _narrow}


def chosen_calls(encoded: Encoded, name: str) -> np.ndarray:
    """Which calls of a graph are of a kind of `CALLS`, `(U,)`."""
    from prenet_gnn.encoding.fields import NUMBERS

    columns = {}
    for field in NUMBERS:
        values = encoded.number(field.name).astype(float)
        columns[field.name] = 2.0 ** (8.0 * values) - 1.0 if field.transform == "size" else values
    return CALLS[name](columns)


def leftover(rows: Rows, places: np.ndarray, fitted: Fitted, name: str) -> pd.DataFrame:
    """Median rates of the chosen calls, one row for each setting and family.

    Raises:
        PreNetError: No row of the places has such calls.
    """
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.encoding.batch import collate
    from prenet_gnn.training.rows import family_names

    found = []
    for place, family in zip(places, family_names(rows, places), strict=True):
        sample = rows.sample(int(place), fitted.latents)
        calls = chosen_calls(sample.encoded, name)
        hardware = get_hardware(str(rows.frame["gpu"].iat[place]))
        clock = hardware.boost_clock_hz or hardware.base_clock_hz
        if not calls.any() or hardware.kind != "gpu" or not clock:
            continue
        phases = np.array([1.0, float(sample.workload.mode == "train")])
        with torch.no_grad():
            times = fitted.model.eval()(collate([sample]))
        weight = sample.encoded.counts[:, None] * phases
        own = float((times.node.numpy() * weight)[calls].sum())
        flops = float((sample.encoded.pair("flops") * weight)[calls].sum())
        measured, total = float(rows.seconds[place]), float(times.total[0])
        left = measured - (total - own)
        if left < LEAST_SHARE * measured:
            continue
        row = rows.frame.iloc[place]
        found.append(
            {
                "device": hardware.name,
                **{key: row[key] for key in KEYS[1:-1]},
                "family": family,
                "models": row["model"],
                "share": left / measured,
                "TFLOP/s": flops / left / 1e12,
                "per clock": flops / left / (hardware.multiprocessors * clock),
                "predicted share": own / total,
            }
        )
    if not found:
        raise PreNetError(f"No held-out row spends its time in calls of the kind '{name}'.")
    table = pd.DataFrame(found).groupby(KEYS, dropna=False)
    numbers: pd.DataFrame = table.median(numeric_only=True)
    return numbers.join(table["models"].nunique()).reset_index()


@command(
    Option("--fold", type=int, required=True, choices=FOLDS),
    Option("--weights", type=Path, required=True),
    Option("--calls", choices=sorted(CALLS), default="wide-depthwise"),
)
def main(options: Options) -> None:
    """Prints the table."""
    from experiments.shared.networks import load_networks, rows_and_fold

    rows, fold = rows_and_fold(options.fold)
    fitted = load_networks(options.weights, rows, fold)[0]
    table = leftover(rows, fold.test["unseen-architecture"], fitted, options.calls)
    with pd.option_context("display.width", 200, "display.max_columns", 20):
        print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
