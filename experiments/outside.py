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

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.shared import markdown
from experiments.shared.command import QUICK, Option, Options, command
from experiments.shared.results import RESULTS, Result, folder_of, provenance, write_result
from prenet_gnn.data.splits import TEST_KINDS
from prenet_gnn.predictor.outside import ZONES, zone_of

if TYPE_CHECKING:
    from prenet_gnn.training.rows import Rows

# An error that counts as large, as natural logarithm of predicted over measured.
LARGE = 0.2
# Share of the errors that an interval of 90% shall hold. On new devices a little more: devices are
# few, and a width that held 90% of those it was taken from holds 87% of the next.
LEVEL, LEVEL_OF_NEW = 0.9, 0.92
# Names of warnings, as columns and in the table.
WARNINGS = {"warned": "any", "new_device": "device", "format": "number format", "graph": "network"}
# The score of a warning where it is not the warning itself.
SCORED = {"warned": "score", "graph": "distance"}
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
    from prenet_gnn.training.run import member_folder

    runs = [
        path
        for path in sorted(folder.glob("accuracy-fold[0-9]-seed[0-9]"))
        if member_folder(path, 0).is_dir() and path.with_suffix(".json").is_file()
    ]
    if not runs:
        raise SystemExit(
            f"outside: '{folder}' holds no networks of `python -m experiments.accuracy --fold N`."
        )
    rows = prepare_rows(None)
    return pd.concat([_of_fold(rows, run, limit) for run in runs], ignore_index=True)


def _of_fold(rows: Rows, run: Path, limit: int | None) -> pd.DataFrame:
    from experiments.shared.networks import load_networks
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.catalogue.rates import number_format
    from prenet_gnn.data.splits import joint_fold
    from prenet_gnn.encoding.latents import device_key
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
            number_format(get_hardware(gpu), rows.workloads[i].precision)
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
        for warning in WARNINGS:
            score = part[SCORED.get(warning, warning)].to_numpy(float)
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
            if len(part):
                held_rows, width = float(part["held"].mean()), float(part["width"].median())
                figures = {"coverage": round(held_rows, 4), "half_width": round(width, 4)}
                lines.append({"split": split, "zone": zone, "rows": len(part), **figures})
    return lines


def table(result: Result) -> str:
    """Errors with and without a warning over all parts, and what intervals cover by part."""
    error = "{0[median]:.1%} / {0[mape]:.1%} / {0[over_20]:.0%}".format
    separated = {
        "warning of": lambda row: WARNINGS.get(row["warning"], row["warning"]),
        "warned": "{share:.0%}",
        "median / MAPE / over 20% with": lambda row: error(row["with"]),
        "without": lambda row: error(row["without"]),
        "AUROC of the score": lambda row: "" if row["auroc"] is None else f"{row['auroc']:.2f}",
    }
    covered = {
        "held out": markdown.spaced("split"),
        "rows": "{rows}",
        "half-width": "±{half_width:.2f}",
        "coverage of 90% intervals": "{coverage:.1%}",
    }
    overall = [row for row in result["separation"] if row["split"] == "all"]
    by_part = [row for row in result["coverage"] if row["zone"] == "all"]
    tables = markdown.table(overall, separated), markdown.table(by_part, covered)
    return markdown.signed(result, *tables)


@command(Option("--runs", type=Path, default=RESULTS, help="where the networks lie"), QUICK)
def main(options: Options) -> None:
    """Predicts held-out rows and compares those with a warning to those without."""
    found = with_warnings(errors(options.runs, 50 if options.quick else None))
    result = {
        **provenance(
            "python -m experiments.outside --runs FOLDER", runs=sorted(found["run"].unique())
        ),
        "separation": list(separation(found)),
        "coverage": coverage(found) if found["fold"].nunique() > 1 else [],
        "intervals": half_widths(found),
    }
    print(table(result))
    print(result["intervals"])
    write_result("outside", result, folder_of(options.quick))


if __name__ == "__main__":
    main()
