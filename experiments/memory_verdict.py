"""Checks predicted memory: does an iteration fit, and how large is its peak.

    python -m experiments.memory_verdict [--models 150] [--again] [--quick]

The training rows of timm were measured on a 24 GB device; the batch started at 512 and was lowered
one step at a time until the run fitted. So every row fits, and one step up does not. Constants are
fitted on half of the families and judged on the other half. Peaks are compared with the rows of
memory.csv.gz whose models can be built. `accelerate` and `torch-kitsune` are asked the same where
they are installed (`experiments.memory.tools`).

What was found out per model lies in the cache folder, so a stopped run goes on where it was; only
figures over groups of rows are written to `results/memory.json`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from experiments.memory import tools
from experiments.memory.cases import SHARES, Case, cases, kept
from experiments.memory.peaks import measured, peak_rows
from experiments.shared import markdown
from experiments.shared.command import QUICK, SEED, Option, Options, command
from experiments.shared.results import Result, folder_of, plain, provenance, write_result
from prenet_gnn.memory.peak import ALLOWANCE, MIB, Allowance

FRAGMENTATIONS = tuple(1.0 + 0.01 * step for step in range(16))
CONTEXTS_MIB = (700, 1000, 1400, 1800)


def shares(found: list[Case], allowance: Allowance) -> tuple[float, float]:
    """Share that is called fitting where it fitted, and not fitting one step up."""
    return both_ends(found, lambda case: case.fits(allowance))


def both_ends(found: list[Case], verdict: Callable[[Case], bool]) -> tuple[float, float]:
    """Share of right verdicts where it fitted, and one step up."""
    right: dict[bool, list[bool]] = {True: [], False: []}
    for case in found:
        right[case.fitted].append(verdict(case) == case.fitted)
    return float(np.mean(right[True] or [np.nan])), float(np.mean(right[False] or [np.nan]))


def fitted_constants(found: list[Case]) -> Allowance:
    """The constants with the most right verdicts, both ends weighing the same."""
    options = (
        replace(
            ALLOWANCE,
            cudnn_share=first,
            cudnn_share_channels_last=second,
            fragmentation=fragmentation,
            eager_context_bytes=context * MIB,
        )
        for first, second, fragmentation, context in itertools.product(
            SHARES, SHARES[:4], FRAGMENTATIONS, CONTEXTS_MIB
        )
        if second <= first
    )
    return max(options, key=lambda allowance: sum(shares(found, allowance)))


def halves(found: list[Case], seed: int) -> tuple[list[Case], list[Case]]:
    """Cases of one half of the families and of the other."""
    names = sorted({case.family for case in found})
    drawn = np.random.default_rng(seed).permutation(names)
    chosen: set[str] = set()
    for name in drawn:
        if sum(case.family in chosen for case in found) < len(found) / 2:
            chosen.add(str(name))
    fit = [case for case in found if case.family in chosen]
    return fit, [case for case in found if case.family not in chosen]


def verdicts(found: list[Case], seed: int) -> tuple[list[dict[str, object]], Allowance]:
    """Rows of the result table on fitting, and the constants that were fitted."""
    fit, held_out = halves(found, seed)
    fitted = fitted_constants(fit)
    rows: list[dict[str, object]] = []
    for name, part, allowance in (
        ("fit half, fitted", fit, fitted),
        ("other half, fitted", held_out, fitted),
        ("all, shipped (not held out)", found, ALLOWANCE),
    ):
        rows.append(_row(name, len(part), *shares(part, allowance)))
    for tool in sorted({name for case in found for name in case.asked}):
        part = [case for case in found if tool in case.asked]
        judged = both_ends(part, partial(Case.fits_by, tool=tool))
        rows.append(_row(tool, len(part), *judged))
        rows.append(_row(f"ours where {tool} answers", len(part), *shares(part, ALLOWANCE)))
    return rows, fitted


def _row(group: str, rows: int, fits_right: float, one_up_right: float) -> dict[str, object]:
    return {
        "group": group,
        "verdicts": rows,
        "fits_right": round(fits_right, 4),
        "one_up_right": round(one_up_right, 4),
    }


def table(result: Result) -> str:
    """Right verdicts at both ends, and errors of peaks."""
    verdicts_of = {
        "predictor": "{group}",
        "verdicts": "{verdicts}",
        "right where it fits": "{fits_right:.1%}",
        "right one step up": "{one_up_right:.1%}",
    }
    peaks_of = {
        "peaks of": "{source}",
        "predictor": "{predictor}",
        "peaks": "{peaks}",
        "mean error": "{mape:.1%}",
        "bias": "{bias:+.1%}",
    }
    tables = (
        markdown.table(result["verdicts"], verdicts_of),
        markdown.table(result["peaks"], peaks_of),
    )
    versions = ", ".join(f"{name} {version}" for name, version in result["tools"].items())
    return f"{markdown.signed(result, *tables)} Tools: {versions}."


@command(
    Option("--models", type=int, default=150),
    SEED,
    Option("--largest-parameters", type=float, default=2e10),
    Option("--again", action="store_true", help="forget what earlier runs found"),
    QUICK,
)
def main(options: Options) -> None:
    """Prints both tables and saves them."""
    models, limit = (4, 2) if options.quick else (options.models, None)
    found = list(cases(models, options.seed, again=options.again))
    rows, fitted = verdicts(found, options.seed)
    peaks = measured(options.largest_parameters, kept(), limit, again=options.again)
    result = {
        **provenance(
            f"python -m experiments.memory_verdict --models {models}",
            seed=options.seed,
            tools=tools.installed(),
        ),
        "fitted": asdict(fitted),
        "verdicts": rows,
        "peaks": peak_rows(peaks),
    }
    print(table(result))
    result["verdicts"] = [plain(row) for row in rows]
    write_result("memory", result, folder_of(options.quick))


if __name__ == "__main__":
    main()
