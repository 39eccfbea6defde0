"""How far two measurements of one point differ, and whether the reported spread covers it.

    prenet measure --sweep models -o again.jsonl --minutes 6       # some points a second time
    python -m experiments.repeatability again.jsonl [--write]

Both files hold records of `prenet measure`; points are matched by what was measured. The spread of
a record is from its 10% to its 90% sample; it covers a second measurement whose median lies within.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.cpu_error import RECORDS
from experiments.provenance import provenance, write_result
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring.records import MeasuredRecord, read_records

FEWEST = 3


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
    def covered(self) -> bool:
        """The spreads of both measurements overlap."""
        a, b = self.first, self.second
        low, high = max(a.p10_s or 0.0, b.p10_s or 0.0), min(a.p90_s or 0.0, b.p90_s or 0.0)
        return low <= high


def pairs_of(first: Sequence[MeasuredRecord], second: Sequence[MeasuredRecord]) -> list[Pair]:
    """Points that both files hold with a time."""
    known = {record.key: record for record in first if record.seconds}
    return [Pair(known[r.key], r) for r in second if r.seconds and r.key in known]


def summary(pairs: Sequence[Pair]) -> dict[str, float]:
    """How far medians differ, over all pairs."""
    sizes = sorted(abs(pair.difference) for pair in pairs)
    return {
        "pairs": len(pairs),
        "median_difference": statistics.median(sizes),
        "p90_difference": sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        "largest_difference": sizes[-1],
        "bias": statistics.median(pair.difference for pair in pairs),
        "covered": statistics.fmean(float(pair.covered) for pair in pairs),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the differences and, with --write, keeps them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("second", type=Path, help="records of the second measurement")
    parser.add_argument("--first", type=Path, default=RECORDS)
    parser.add_argument("--write", action="store_true", help="keep the result")
    arguments = parser.parse_args(argv)
    try:
        pairs = pairs_of(read_records(arguments.first), read_records(arguments.second))
    except PreNetError as error:
        print(f"repeatability: {error}", file=sys.stderr)
        return 1
    if len(pairs) < FEWEST:
        print(f"repeatability: only {len(pairs)} points were measured twice", file=sys.stderr)
        return 1
    found = summary(pairs)
    for name, value in found.items():
        print(f"{name:<20}{value:>8.0f}" if name == "pairs" else f"{name:<20}{value:>8.1%}")
    if arguments.write:
        command = "python -m experiments.repeatability again.jsonl"
        write_result("repeatability", {**provenance(command), **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
