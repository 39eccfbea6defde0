"""FLOP per clock and multiprocessor that convolutions reach in measured rows, by device and format.

    python -m experiments.rates [--model vgg16] [--precision fp64]

VGG is nearly all dense 3 x 3 convolutions, so its FLOPs over its time tell what a device's library
reaches. Forward are rows of inference; backward is what a training step takes beyond that. A table
is printed and nothing written: it comes close to the measured rows, which stay out of this
repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from experiments.shared.command import Option, Options, command
from prenet_gnn.errors import PreNetError

if TYPE_CHECKING:
    from prenet_gnn.training.rows import Rows

KEYS = ["device", "framework", "precision", "batch_size"]


def rates(rows: Rows, model: str, precision: str | None = None) -> pd.DataFrame:
    """Best FLOP per clock and multiprocessor, forward and backward, and the data sheet's.

    Raises:
        PreNetError: No row is of that model and precision.
    """
    frame = rows.frame
    chosen = frame["model"].str.split(":").str[-1] == model
    if precision is not None:
        chosen &= frame["precision"] == precision
    found = pd.DataFrame(filter(None, (_row(rows, int(i)) for i in chosen.to_numpy().nonzero()[0])))
    if found.empty:
        raise PreNetError(f"No measured row is of model '{model}' and that precision.")
    best = found.loc[found.groupby([*KEYS, "mode"], dropna=False)["seconds"].idxmin()]
    infer = best[best["mode"] == "infer"].set_index(KEYS)
    train = best[best["mode"] == "train"].set_index(KEYS)[["seconds", "backward"]]
    both = infer.drop(columns="backward").join(train.add_prefix("train_"))
    backward_s = both["train_seconds"] - both["seconds"]
    result = pd.DataFrame(
        {
            "forward": both["forward"] / both["seconds"] / both["lanes"],
            "backward": both["train_backward"] / backward_s / both["lanes"],
            "data sheet": both["peak"] / both["lanes"],
        }
    )
    largest: pd.DataFrame = result.groupby(KEYS[:3], dropna=False).max().reset_index()
    return largest.sort_values(["precision", "device"])


def _row(rows: Rows, place: int) -> dict[str, Any] | None:
    """Time and FLOPs of a row, and what its device could do; None without a known clock."""
    from prenet_gnn.catalogue.devices import get_hardware

    row = rows.frame.iloc[place]
    hardware = get_hardware(str(row["gpu"]))
    clock = hardware.boost_clock_hz or hardware.base_clock_hz
    if not clock or hardware.kind != "gpu":
        return None
    encoded = rows.encoded(place)
    forward, backward = encoded.counts @ encoded.pair("flops")
    return {
        "device": hardware.name,
        **{key: row[key] for key in ("framework", "precision", "batch_size", "mode")},
        "seconds": rows.seconds[place],
        "forward": forward,
        "backward": backward,
        "lanes": hardware.multiprocessors * clock,
        "peak": hardware.peak_flops_per_s(str(row["precision"])),
    }


@command(
    Option("--model", default="vgg16"),
    Option("--precision", help="one precision only"),
)
def main(options: Options) -> None:
    """Prints the table."""
    from prenet_gnn.training.prepare import prepare_rows

    table = rates(prepare_rows(None), options.model, options.precision)
    print(table.round(1).to_string(index=False))


if __name__ == "__main__":
    main()
