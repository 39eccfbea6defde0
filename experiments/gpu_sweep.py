"""Measures one CUDA device in nine minutes: models, layers and a few compiled models.

    python -m experiments.gpu_sweep --out records            # needs a CUDA device
    python -m experiments.gpu_sweep --small --out records    # the same on a CPU, in seconds

Each part stops when its share of the time is up, and what has been measured stays: run it again
with the same folder to go on. Two files come out, `models.jsonl` and `layers.jsonl`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.shared.command import Option, Options, command
from prenet_gnn.measuring import SweepSummary, supervised_sweep

# Files are meant to travel; larger ones are refused by many tools
MAX_FILE_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """A sweep, the file for its records, and the share of the time at which it ends."""

    sweep: str
    file: str
    until: float


# A compiled point may take half a minute beyond its end, so the last part leaves room for one
FULL = (
    Part("gpu", "models.jsonl", 0.61),
    Part("gpu_layers", "layers.jsonl", 0.87),
    Part("gpu_compiled", "models.jsonl", 0.93),
)
SMALL = (Part("small", "models.jsonl", 1.0),)


def run_parts(
    parts: Sequence[Part], out: Path, minutes: float, device: str, progress: bool = True
) -> list[SweepSummary]:
    """Runs the parts one after another; time that a part leaves goes to the next."""
    start = time.monotonic()
    summaries = []
    for part in parts:
        left = part.until * minutes - (time.monotonic() - start) / 60
        if left <= 0:
            print(f"{part.sweep}: no time left", file=sys.stderr)
            continue
        summary = supervised_sweep(part.sweep, out / part.file, left, device, progress=progress)
        print(
            f"{summary.name}: {summary.measured} measured in {summary.seconds:.0f} s "
            f"({summary.oom} did not fit, {summary.failed} failed), {summary.known} known before, "
            f"{summary.skipped} skipped, {summary.remaining} of {summary.total} left"
        )
        for note in summary.notes:
            print(f"  {note}")
        summaries.append(summary)
    return summaries


@command(
    Option("--out", type=Path, required=True, help="folder for the records"),
    Option("--minutes", type=float, default=9.0, help="time limit of all parts"),
    Option("--device", help="cuda, cuda:1, cpu; default: cuda, with --small cpu"),
    Option("--small", action="store_true", help="a few points, on any device"),
    Option("--quiet", action="store_true", help="no progress bar"),
)
def main(options: Options) -> None:
    """Runs the sweep; an error when it cannot start or a file grew too large to pass on."""
    device = options.device or ("cpu" if options.small else "cuda")
    parts = SMALL if options.small else FULL
    run_parts(parts, options.out, options.minutes, device, not options.quiet)
    sizes = {path: path.stat().st_size for path in sorted(options.out.glob("*.jsonl"))}
    for path, size in sizes.items():
        print(f"{path}: {size / 1e6:.1f} MB")
    large = [str(path) for path, size in sizes.items() if size > MAX_FILE_BYTES]
    if large:
        raise SystemExit(f"gpu_sweep: above {MAX_FILE_BYTES / 1e6:.0f} MB: {', '.join(large)}")


if __name__ == "__main__":
    main()
