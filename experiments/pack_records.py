"""Packs a records file for the repository: one line per point, sorted, compressed.

    python -m experiments.pack_records layers.jsonl experiments/records/NAME.jsonl.gz

With --hardware the records get a name of the catalogue, which then stands for the specifications
that were measured beside them. Failed points (status `error` or `crash`) are left out and counted;
`oom` is a result and stays.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.shared.command import Option, Options, command
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.record_file import read_records, write_gzip
from prenet_gnn.data.records import MeasuredRecord

FINISHED = ("ok", "oom")


def packed(
    records: Sequence[MeasuredRecord], samples: int, hardware: str | None = None
) -> list[MeasuredRecord]:
    """The last record of each point, in a fixed order, with at most so many samples."""
    if hardware is not None:
        name = get_hardware(hardware).name
        records = [dataclasses.replace(r, hardware=name, hardware_entry=None) for r in records]
    last = {record.key: record for record in records if record.status in FINISHED}
    ordered = sorted(last.values(), key=lambda r: (r.model, r.batch_size, r.mode, r.key))
    return [dataclasses.replace(r, samples_s=r.samples_s[:samples]) for r in ordered]


@command(
    Option("source", type=Path, nargs="+", help=".jsonl files of `prenet measure`"),
    Option("target", type=Path, help=".jsonl.gz file to write"),
    Option("--samples", type=int, default=50, help="samples to keep per record"),
    Option("--hardware", help="catalogue name of the device that was measured"),
)
def main(options: Options) -> None:
    """Packs one file and prints what it holds."""
    records = [record for path in options.source for record in read_records(path)]
    kept = packed(records, options.samples, options.hardware)
    size = write_gzip(options.target, kept)
    counts = Counter(f"{r.model.partition(':')[0]} {r.mode}" for r in kept)
    print(f"{options.target}: {len(kept)} records, {size / 1e6:.2f} MB, {dict(counts)}")
    failed = Counter(r.status for r in records if r.status not in FINISHED)
    if failed:
        print(f"left out: {dict(failed)}")


if __name__ == "__main__":
    main()
