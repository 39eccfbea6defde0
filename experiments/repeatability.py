"""How far two measurements of one point differ, and whether the reported spread covers it.

    python -m experiments.repeatability again.jsonl --measure 6 [--write]

Measures points of the sweep `models` for some minutes, each of them twice in a row, into
`again.jsonl` and `again-first.jsonl`, and compares the two with each other and with the records of
`records/cpu-models.jsonl.gz`, which are older. Without `--measure` the files are read as they are.
Points are matched by what was measured. The spread of a record is from its 10% to its 90% sample;
two measurements agree if their spreads overlap.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.cpu_error import RECORDS
from experiments.shared import markdown
from experiments.shared.command import WRITE, Option, Options, command
from experiments.shared.results import Result, provenance, write_result
from prenet_gnn.data.record_file import read_records
from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.measuring.sweep_run import SweepSettings, run_sweep

FEWEST = 3
# Slow models are measured a few times only, for seconds, which is as long as the speed of a core
# that others share stays the same; a median of more iterations is steadier.
MANY = 15
SWEEP = "models"
# Time is up by the clock below, long before these minutes are over.
SETTINGS = SweepSettings(1.0, "cpu", threads=1, progress=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """One point, measured twice."""

    first: MeasuredRecord
    second: MeasuredRecord

    @property
    def difference(self) -> float:
        """Second over first median, minus one."""
        assert self.first.seconds and self.second.seconds
        return self.second.seconds / self.first.seconds - 1.0

    @property
    def cpu_difference(self) -> float:
        """The same of the processor time of an iteration; zero where it was not recorded."""
        a, b = self.first.cpu_s, self.second.cpu_s
        return b / a - 1.0 if a and b else 0.0

    @property
    def samples(self) -> int:
        """Iterations behind the median that has fewer of them."""
        return min(len(self.first.samples_s or ()), len(self.second.samples_s or ()))

    @property
    def covered(self) -> bool:
        """The spreads of both measurements overlap."""
        a, b = self.first, self.second
        low, high = max(a.p10_s or 0.0, b.p10_s or 0.0), min(a.p90_s or 0.0, b.p90_s or 0.0)
        return low <= high


def identity(record: MeasuredRecord) -> tuple[object, ...]:
    """What was measured; a device's own name and its name in the catalogue are the same device."""
    names = ("model", "batch_size", "image_size", "seq_len", "workload", "threads", "device_type")
    return tuple(getattr(record, name) for name in names)


def pairs_of(first: Sequence[MeasuredRecord], second: Sequence[MeasuredRecord]) -> list[Pair]:
    """Points that both files hold with a time."""
    known = {identity(record): record for record in first if record.seconds}
    return [Pair(known[identity(r)], r) for r in second if r.seconds and identity(r) in known]


def summary(pairs: Sequence[Pair]) -> dict[str, float]:
    """How far medians differ, over all pairs."""
    sizes = sorted(abs(pair.difference) for pair in pairs)
    return {
        "pairs": len(pairs),
        "median_difference": statistics.median(sizes),
        "median_cpu_difference": statistics.median(abs(pair.cpu_difference) for pair in pairs),
        "p90_difference": sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        "largest_difference": sizes[-1],
        "bias": statistics.median(pair.difference for pair in pairs),
        "covered": statistics.fmean(float(pair.covered) for pair in pairs),
    }


def first_of(second: Path) -> Path:
    """The file of the first of two measurements in a row."""
    return second.with_name(f"{second.stem}-first.jsonl")


def measure_twice(second: Path, minutes: float, sweep: str = SWEEP) -> None:
    """Measures one point after the other, each into both files; goes on where it stopped."""
    end = time.monotonic() + 60.0 * minutes
    while time.monotonic() < end:
        measured = 0
        for path in (first_of(second), second):
            # a clock that lets one point be measured: it stands at zero, then time is up
            clock = itertools.chain([0.0, 0.0], itertools.repeat(math.inf))
            made = run_sweep(sweep, path, SETTINGS, now=functools.partial(next, clock))
            measured += made.measured
        if not measured:
            break


def compared(second: Path, older: Path) -> dict[str, dict[str, float]]:
    """Differences in a row and from older records, of all points and of those with many samples."""
    found: dict[str, dict[str, float]] = {}
    records = read_records(second)
    for name, path in (("in a row", first_of(second)), ("with committed records", older)):
        pairs = pairs_of(read_records(path), records) if path.exists() else []
        many = [pair for pair in pairs if pair.samples >= MANY]
        for label, chosen in ((name, pairs), (f"{name}, {MANY} samples or more", many)):
            if len(chosen) >= FEWEST:
                found[label] = summary(chosen)
    return found


def table(result: Result) -> str:
    """How far two measurements of a point differ."""
    columns = {
        "compared": "{name}",
        "pairs": "{pairs}",
        "medians differ by": "{median_difference:.1%}",
        "processor time by": "{median_cpu_difference:.1%}",
        "90% by less than": "{p90_difference:.1%}",
        "bias": "{bias:+.1%}",
        "spreads overlap": "{covered:.0%}",
    }
    lines = [
        {"name": name, **found}
        for name, found in result.items()
        if isinstance(found, dict) and "pairs" in found
    ]
    return markdown.signed(result, markdown.table(lines, columns))


@command(
    Option("second", type=Path, help="records of the second measurement"),
    Option("--measure", type=float, metavar="MINUTES", help="measure points twice"),
    Option("--sweep", default=SWEEP, help="name or file of a sweep"),
    Option("--older", type=Path, default=RECORDS),
    WRITE,
)
def main(options: Options) -> None:
    """Prints the differences and, with --write, keeps them."""
    if options.measure is not None:
        measure_twice(options.second, options.measure, options.sweep)
    found = compared(options.second, options.older)
    if not found:
        raise SystemExit(f"repeatability: fewer than {FEWEST} points were measured twice")
    made = provenance(f"python -m experiments.repeatability {options.second.name}")
    print(table(made | found))
    if options.write:
        write_result("repeatability", made | found)


if __name__ == "__main__":
    main()
