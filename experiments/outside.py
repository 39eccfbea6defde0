"""Do the warnings tell large errors from small ones, and how wide are intervals on each side?

    python -m experiments.outside [--runs FOLDER] [--quick]

Takes the networks that `experiments.accuracy` left beside its result files, predicts the held-out
rows of their folds and compares rows with a warning to rows without one. A warning says that a
device has no measured times, that its number format is poorly known, or that the graph lies outside
of those in training (`prenet_gnn.predictor.outside`). The score adds up all three. The half-widths
of 90% intervals inside and outside go into the weights by `experiments.ship`; their coverage is
tried on folds that had no part in them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.provenance import RESULTS, provenance, write_result
from prenet_gnn.data.splits import TEST_KINDS
from prenet_gnn.predictor.outside import ZONES, zone_of

if TYPE_CHECKING:
    from prenet_gnn.training.rows import Rows

# An error that counts as large, as natural logarithm of predicted over measured.
LARGE = 0.2
# Share of the errors that an interval of 90% shall hold. On new devices a little more: devices are
# few, and a width that held 90% of those it was taken from holds 87% of the next.
LEVEL, LEVEL_OF_NEW = 0.9, 0.92
# Distances beyond this say no more.
FARTHEST = 2.0
FEWEST_ROWS = 30


def auroc(score: np.ndarray, large: np.ndarray) -> float | None:
    """Chance that a row with a large error has the larger score; None where all are alike."""
    positive = int(large.sum())
    negative = len(large) - positive
    if not positive or not negative:
        return None
    ranks = pd.Series(score).rank().to_numpy()
    above = ranks[large].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def errors(folder: Path, limit: int | None = None) -> pd.DataFrame:
    """Held-out rows of all folds that have a network: error, warnings and score of each."""
    from prenet_gnn.training.prepare import prepare_rows

    runs = [
        path
        for path in sorted(folder.glob("accuracy-fold[0-9]-seed[0-9]"))
        if (path / "last.ckpt").is_file() and path.with_suffix(".json").is_file()
    ]
    if not runs:
        raise SystemExit(
            f"outside: '{folder}' holds no networks of `python -m experiments.accuracy --fold N`."
        )
    rows = prepare_rows(None)
    return pd.concat([_of_fold(rows, run, limit) for run in runs], ignore_index=True)


def _of_fold(rows: Rows, run: Path, limit: int | None) -> pd.DataFrame:
    from experiments.calibration_points import load_networks
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.data.splits import joint_fold
    from prenet_gnn.encoding.device import format_of
    from prenet_gnn.network.latents import device_key
    from prenet_gnn.predictor.outside import summary
    from prenet_gnn.predictor.predictor import POORLY_KNOWN_FORMATS
    from prenet_gnn.training.fit import predict_rows
    from prenet_gnn.training.run import seen_in

    number = int(json.loads(run.with_suffix(".json").read_text(encoding="utf-8"))["fold"])
    fold = joint_fold(rows.frame, number)
    fitted = load_networks(run, rows, fold)[0]
    seen, timed = seen_in(rows, fold.train), set(rows.latents(fold.train).devices)
    parts = []
    for split, chosen in fold.test.items():
        chosen = chosen[:: max(1, len(chosen) // limit)] if limit else chosen
        if not len(chosen):
            continue
        gpus = [str(rows.frame["gpu"].iat[i]) for i in chosen]
        formats = [
            format_of(get_hardware(gpu), rows.workloads[i].precision)
            for gpu, i in zip(gpus, chosen, strict=True)
        ]
        summaries = {rows.keys[i]: summary(rows.store.entries[rows.keys[i]]) for i in chosen}
        near = dict(zip(summaries, seen.distances(np.stack(list(summaries.values()))), strict=True))
        keys = [device_key(gpu, kind) for gpu, kind in zip(gpus, formats, strict=True)]
        parts.append(
            pd.DataFrame(
                {
                    "run": run.name,
                    "fold": number,
                    "split": split,
                    "mode": [rows.workloads[i].mode for i in chosen],
                    "log": np.log(predict_rows(fitted, rows, chosen) / rows.seconds[chosen]),
                    "new_device": [key not in timed for key in keys],
                    "format": [kind in POORLY_KNOWN_FORMATS for kind in formats],
                    "distance": [near[rows.keys[i]] for i in chosen],
                }
            )
        )
        print(run.name, split, len(chosen), flush=True)
    return pd.concat(parts, ignore_index=True)


def with_warnings(table: pd.DataFrame) -> pd.DataFrame:
    """Adds `graph`, `outside` (graph or number format), `zone`, `warned` and `score`."""
    graph = table["distance"] > 1.0
    outside = graph | table["format"]
    score = table["distance"].clip(upper=FARTHEST) + table["new_device"] + table["format"]
    warned = outside | table["new_device"]
    zone = np.where(outside, "outside", [zone_of(distance) for distance in table["distance"]])
    return table.assign(graph=graph, outside=outside, zone=zone, warned=warned, score=score)


def separation(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """How errors with and without each warning differ, for every split and for all."""
    for split in (*TEST_KINDS, "all"):
        part = table if split == "all" else table[table["split"] == split]
        if part.empty:
            continue
        large = (part["log"].abs() > LARGE).to_numpy()
        for warning in ("warned", "new_device", "format", "graph"):
            score = part["score" if warning == "warned" else _column(warning)].to_numpy(float)
            warned = part[warning].to_numpy()
            yield {
                "split": split,
                "warning": "any" if warning == "warned" else warning,
                "rows": len(part),
                "share": round(float(warned.mean()), 4),
                "auroc": _rounded(auroc(score, large)),
                "with": _errors(part["log"].to_numpy()[warned]),
                "without": _errors(part["log"].to_numpy()[~warned]),
            }


def _column(warning: str) -> str:
    return "distance" if warning == "graph" else warning


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _errors(log: np.ndarray) -> dict[str, Any]:
    error = np.abs(np.expm1(log))
    if not len(error):
        return {"rows": 0}
    return {
        "rows": len(error),
        "mape": round(float(error.mean()), 4),
        "median": round(float(np.median(error)), 4),
        "over_20": round(float((np.abs(log) > LARGE).mean()), 4),
    }


def half_widths(table: pd.DataFrame) -> dict[str, float]:
    """Half-widths of 90% intervals by situation, mode and zone.

    Random rows have a part in those near training alone: theirs are known families.
    """
    found = {}
    taken = table[(table["split"] != "random") | (table["zone"] == "near")]
    for (new, mode, zone), part in taken.groupby(["new_device", "mode", "zone"]):
        if len(part) >= FEWEST_ROWS:
            width = float(np.quantile(part["log"].abs(), LEVEL_OF_NEW if new else LEVEL))
            found[_situation(new, mode, zone)] = round(width, 4)
    return found


def _situation(new_device: Any, mode: Any, zone: Any) -> str:
    return f"{'new' if new_device else 'known'}_device|{mode}|{zone}"


def coverage(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Share of rows within intervals whose widths come from all folds but the row's own.

    One line for every split and zone, and one for all zones of a split.
    """
    held = []
    for fold in sorted(table["fold"].unique()):
        widths = half_widths(table[table["fold"] != fold])
        part = table[table["fold"] == fold]
        names = map(_situation, part["new_device"], part["mode"], part["zone"])
        width = np.array([widths.get(name, np.nan) for name in names])
        held.append(part.assign(width=width, held=part["log"].abs() <= width))
    tried = pd.concat(held).dropna(subset=["width"])
    lines = []
    for split in TEST_KINDS:
        for zone in (*ZONES, "all"):
            part = tried[(tried["split"] == split) & ((tried["zone"] == zone) | (zone == "all"))]
            if part.empty:
                continue
            lines.append(
                {
                    "split": split,
                    "zone": zone,
                    "rows": len(part),
                    "coverage": round(float(part["held"].mean()), 4),
                    "half_width": round(float(part["width"].median()), 4),
                }
            )
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=RESULTS, help="where the networks lie")
    parser.add_argument("--quick", action="store_true", help="few rows of every split, no file")
    args = parser.parse_args()
    table = with_warnings(errors(args.runs, 50 if args.quick else None))
    rows = list(separation(table))
    for row in rows:
        sides = [
            f"{row[side]['rows']:>6} rows {row[side].get('median', float('nan')):>7.1%}"
            for side in ("with", "without")
        ]
        print(f"{row['split']:<20} {row['warning']:<11} {row['share']:>6.1%} warned, median error "
              f"with {sides[0]}, without {sides[1]}, AUROC {row['auroc']}")  # fmt: skip
    covered = coverage(table) if table["fold"].nunique() > 1 else []
    for row in covered:
        print(f"{row['split']:<20} {row['zone']:<8} {row['rows']:>6} rows {row['coverage']:.1%} "
              f"within +-{row['half_width']:.2f}")  # fmt: skip
    widths = half_widths(table)
    print(widths)
    if args.quick:
        return
    facts = provenance(
        "python -m experiments.outside --runs FOLDER", runs=sorted(table["run"].unique())
    )
    write_result("outside", {**facts, "separation": rows, "coverage": covered, "intervals": widths})


if __name__ == "__main__":
    main()
