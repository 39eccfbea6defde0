"""How often do intervals hold on a fold that had no part in their width?

    python -m experiments.coverage

Reads the result files of `experiments.accuracy`. The half-widths come from all folds but one, as
`experiments.ship` takes them, and are tried on that one; each fold has its turn. The spread between
the networks of an ensemble, which widens shipped intervals, is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.provenance import provenance, write_result
from experiments.tables import intervals, load_results

SITUATIONS = {
    "random": "known_device",
    "unseen-architecture": "known_device",
    "unseen-device": "new_device",
    "unseen-both": "new_device",
}


def held(quantiles: list[float], half_width: float) -> float:
    """Share of errors below a half-width, from a grid of their quantiles."""
    return float(np.interp(half_width, quantiles, np.linspace(0.0, 1.0, len(quantiles))))


def coverage(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each fold, split and mode."""
    rows = []
    for tested in results:
        widths = intervals([other for other in results if other["fold"] != tested["fold"]])
        for split, situation in SITUATIONS.items():
            for mode in ("train", "infer"):
                part = tested["details"][split]["intervals"][mode]
                width = widths.get(f"{situation}|{mode}")
                if not part["rows"] or width is None:
                    continue
                rows.append(
                    {
                        "fold": tested["fold"],
                        "seed": tested["seed"],
                        "split": split,
                        "mode": mode,
                        "rows": part["rows"],
                        "half_width": round(width, 4),
                        "coverage": round(held(part["quantiles"], width), 4),
                    }
                )
    return rows


def main() -> None:
    """Command line."""
    results = list(load_results())
    if len({result["fold"] for result in results}) < 2:
        raise SystemExit("coverage needs two folds: run `python -m experiments.accuracy --fold N`.")
    rows = coverage(results)
    for row in rows:
        print(f"fold {row['fold']}  {row['split']:<20} {row['mode']:<6} {row['rows']:>5} rows  "
              f"+-{row['half_width']:.2f}  {row['coverage']:.1%}")  # fmt: skip
    for split in SITUATIONS:
        parts = [row for row in rows if row["split"] == split]
        if parts:
            weights = [row["rows"] for row in parts]
            mean = np.average([row["coverage"] for row in parts], weights=weights)
            print(f"all    {split:<20} {sum(weights):>12} rows         {mean:.1%}")
    write_result("coverage", {**provenance("python -m experiments.coverage"), "rows": rows})


if __name__ == "__main__":
    main()
