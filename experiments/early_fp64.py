"""From how many channels on early libraries run float64 convolutions slowly.

    python -m experiments.early_fp64

For every chip before Ampere with float64 inference of an early or unknown PyTorch: two rates, one
for convolutions below a limit of output channels and one from it on, memory traffic and kernels are
fitted to the measured times (non-negative least squares on relative errors), for several limits.
A table of mean errors is printed and nothing written: it comes close to the measured rows, which
stay out of this repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from experiments.shared.command import Options, command
from prenet_gnn.errors import PreNetError

if TYPE_CHECKING:
    from prenet_gnn.encoding.encode import Encoded
    from prenet_gnn.training.rows import Rows

LIMITS = (32, 48, 64, 96, 128, 160, 192, 240, 256, 300, 512)
# Rows of fewer networks say little.
FEWEST = 15


def terms(encoded: Encoded, limit: int) -> np.ndarray:
    """`(5,)`: TFLOP of convolutions below and from the limit on, of the rest; TB; M kernels."""
    from prenet_gnn.encoding.fields import size_log

    conv = encoded.number("kind_conv") > 0
    many = conv & (encoded.number("log_cols") > size_log(limit - 1) + 1e-4)
    flops, moved, kernels = (
        encoded.pair(name)[:, 0] * encoded.counts for name in ("flops", "bytes", "kernels")
    )
    by_group = [flops[chosen].sum() / 1e12 for chosen in (conv & ~many, many, ~conv)]
    return np.array([*by_group, moved.sum() / 1e12, kernels.sum() / 1e6])


def error(matrix: np.ndarray, seconds: np.ndarray) -> float:
    """Mean absolute logarithmic error of the best non-negative rates."""
    best, _ = nnls(matrix / seconds[:, None], np.ones(len(seconds)))
    return float(np.abs(np.log(np.maximum(matrix @ best, 1e-12) / seconds)).mean())


def limits(rows: Rows) -> pd.DataFrame:
    """Mean error of every limit, a row for each device and framework.

    Raises:
        PreNetError: No row is of float64 inference on such a chip.
    """
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.catalogue.rates import rates_of
    from prenet_gnn.encoding.fields import ERAS

    groups: dict[tuple[str, str], list[int]] = {}
    frame = rows.frame
    chosen = (frame["precision"] == "fp64") & (frame["mode"] == "infer")
    for place in chosen.to_numpy().nonzero()[0]:
        hardware = get_hardware(str(frame["gpu"].iat[place]))
        version = rows.workloads[place].framework_version
        is_early = version is None or version < ERAS[0]
        if not is_early or not rates_of(hardware, "fp64").has_slow_early_fp64:
            continue
        groups.setdefault((hardware.name, str(frame["framework"].iat[place])), []).append(place)
    table = []
    for (name, framework), places in sorted(groups.items()):
        if len(places) < FEWEST:
            continue
        encoded = [rows.encoded(place) for place in places]
        seconds = rows.seconds[places]
        found = {
            limit: error(np.stack([terms(e, limit) for e in encoded]), seconds) for limit in LIMITS
        }
        table.append({"device": name, "framework": framework, "rows": len(places), **found})
    if not table:
        raise PreNetError("No measured row is of float64 inference on an early chip.")
    return pd.DataFrame(table)


@command()
def main(_: Options) -> None:
    """Prints the table."""
    from prenet_gnn.training.prepare import prepare_rows

    table = limits(prepare_rows(None))
    print(table.round(3).to_string(index=False))
    print("mean", table[list(LIMITS)].mean().round(3).to_dict())


if __name__ == "__main__":
    main()
