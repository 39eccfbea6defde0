"""Tables of docs/experiments.md from the result files of the larger studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Settings that a study shows: those whose share of the variance is largest.
SHOWN_SETTINGS = 8


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def footer(module: str, result: dict[str, Any]) -> str:
    """The command, commit and versions of a result."""
    command = " ".join([f"python -m experiments.{module}", *result["arguments"]])
    return f"`{command}`, commit {result['commit']}, torch {result['versions']['torch']}."


def tuning(result: dict[str, Any]) -> str:
    """The best settings, what decides, and whether the small sample ranks as a larger one does."""
    best, states = dict(result["best"]), result["trials"]
    number, error = best.pop("trial"), best.pop("validation_mape")
    shares = sorted(result["importances"].items(), key=lambda item: -item[1])[:SHOWN_SETTINGS]
    rows = [(f"`{name}`", f"{share:.0%}", _value(best.get(name))) for name, share in shares]
    agreed = result["ranking on twice the rows and epochs"]
    rank = "not known" if agreed["spearman"] is None else f"{agreed['spearman']:.2f}"
    trials = ", ".join(f"{count} {state}" for state, count in states.items())
    text = (
        f"{trials}. Best: trial {number} with a validation error of {error:.1%}. Rank correlation "
        f"with fits to twice the rows and epochs, over {agreed['settings']} settings from the best "
        f"to the worst: {rank}."
    )
    head = ("setting", "share of the variance (fANOVA)", "in the best trial")
    return f"{text}\n\n{table(head, rows)}\n\n{footer('tuning', result)}"


def compare(result: dict[str, Any]) -> str:
    """Mean error of every predictor on every part of a fold."""
    splits = list(dict.fromkeys(s for found in result["mape"].values() for s in found))
    rows = [
        (name, *(f"{found[s]:.1%}" if s in found else "" for s in splits))
        for name, found in result["mape"].items()
    ]
    head = ("predictor and features", *(split.replace("-", " ") for split in splits))
    return f"{table(head, rows)}\n\n{footer('compare', result)}"


def layers(result: dict[str, Any]) -> str:
    """What PreNeT's features save of the error on single layers, and whole models."""
    top, paper = (
        f"{found['percent']}% ({found['model']}, {found['family']})"
        for found in (result["best reduction"], result["paper"]["best reduction"])
    )
    whole = result["end to end"]
    errors = ", ".join(
        f"{name.removesuffix('_error_percent').replace('_', ' ')} {value:.0f}%"
        for name, value in whole["mean error in percent"].items()
    )
    return (
        "Pairs of family and model whose RMSE falls: "
        f"{result['family and model pairs whose RMSE falls']}. Largest saving: {top}; in the paper "
        f"{paper}.\n\nWhole models, {whole['runs']} epochs of VGG-16 and BERT that the paper "
        f"measured, mean error: {errors}.\n\n{footer('prenet_layers', result)}"
    )


def search(result: dict[str, Any]) -> str:
    """What the search found, and how fast the loop without new traces is."""
    best, fast = result["best"], result["fast_loop"]
    rows = [
        (
            f"best loss in {result['hours']:g} h on {result['hardware']}",
            _settings(best),
            f"{best['value']:.3f}",
            f"{best['trials']} ({best['pruned_for_memory']} pruned)",
        ),
        (
            "tokens per dollar of that model",
            _settings(fast["best"]),
            f"{fast['best']['value']:.2e}",
            f"{fast['best']['trials']} ({fast['best']['pruned_for_memory']} pruned)",
        ),
    ]
    speed = (
        f"Trials that change batch size, precision or device only: {fast['trials_per_second']:.0f} "
        f"per second ({fast['trials_per_cpu_second']:.0f} per second of the processor)."
    )
    head = ("searched", "found", "value", "trials")
    return f"{table(head, rows)}\n\n{speed}\n\n{footer('search_architecture', result)}"


def _settings(found: dict[str, Any]) -> str:
    names = ("width", "depth", "batch_size", "precision", "device")
    return ", ".join(f"{name.replace('_', ' ')} {found[name]}" for name in names if name in found)


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
