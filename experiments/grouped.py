"""Which grouped convolutions are slow in the channels-last layout?

    python -m experiments.grouped [--device NAME] [--mode train]

Networks that were measured in both layouts under one version of PyTorch: how much longer a sample
takes in channels-last, where all their grouped convolutions have `groups_by_16` (see
`prenet_gnn.features.schema`) and where some have not; depthwise ones do not count. A table is
printed and nothing written: it comes close to the measured rows, which stay out of this repository.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from prenet_gnn.errors import PreNetError

if TYPE_CHECKING:
    from prenet_gnn.features.encode import Encoded
    from prenet_gnn.training.rows import Rows

DEVICE = "NVIDIA GeForce RTX 3090"
# Share of a network's grouped work from which on it counts as one with others.
OTHERS = 0.05


def work_of_groups(encoded: Encoded) -> tuple[float, float]:
    """Forward FLOPs over group width of grouped convolutions: with kernels of their own, others."""
    from prenet_gnn.features.schema import KINDS, NUMBERS

    def column(name: str) -> np.ndarray:
        values: np.ndarray = encoded.numbers[:, len(KINDS) + NUMBERS.index(name)].astype(float)
        return values

    grouped = column("is_grouped") > 0
    width = np.maximum(2.0 ** (8.0 * column("log_cols")) - 1.0, 1.0)
    work = grouped * encoded.work[:, 0] * encoded.counts / width
    own = column("groups_by_16") > 0
    return float(work[own].sum()), float(work[~own].sum())


def layouts(rows: Rows, device: str, mode: str) -> pd.DataFrame:
    """A row for each version and each of both sorts of networks: the ratio of the two layouts.

    Raises:
        PreNetError: No network with grouped convolutions was measured in both layouts.
    """
    frame = rows.frame
    chosen = (frame["gpu"] == device) & (frame["mode"] == mode) & ~frame["compiled"].astype(bool)
    table = []
    for place in np.flatnonzero(chosen.to_numpy()):
        encoded = rows.store.entries[rows.keys[place]]
        own, others = work_of_groups(encoded)
        if own + others <= 0:
            continue
        row = frame.iloc[place]
        table.append(
            {
                "framework": row["framework"],
                "model": row["model"],
                "image_size": row["image_size"],
                "channels_last": bool(row["channels_last"]),
                "seconds": rows.seconds[place] / row["batch_size"],
                "others": others / (own + others) > OTHERS,
            }
        )
    if not table:
        raise PreNetError(f"No network with grouped convolutions was measured on {device}.")
    keys = ["framework", "others", "model", "image_size"]
    times = pd.DataFrame(table).pivot_table(index=keys, columns="channels_last", values="seconds")
    if set(times.columns) != {False, True} or times.dropna().empty:
        raise PreNetError(f"No such network was measured in both layouts on {device}.")
    ratio = (times[True] / times[False]).dropna()
    parts = ratio.groupby(level=["framework", "others"])
    found = pd.DataFrame(
        {
            "networks": parts.size(),
            "lower quarter": parts.quantile(0.25),
            "median": parts.median(),
            "upper quarter": parts.quantile(0.75),
        }
    )
    return found.reset_index()


def main() -> int:
    """Prints the table."""
    from prenet_gnn.training.run import prepare_rows

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--mode", default="train", choices=("train", "infer"))
    arguments = parser.parse_args()
    try:
        table = layouts(prepare_rows(None), arguments.device, arguments.mode)
    except PreNetError as error:
        print(f"grouped: {error}", file=sys.stderr)
        return 1
    print("seconds in channels-last over seconds in the plain layout")
    print(table.round(2).to_string(index=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
