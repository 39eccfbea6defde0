"""What a study found: its best settings as a configuration, a table of trials, an HTML report."""

from __future__ import annotations

import csv
import html
import io
import json
from pathlib import Path
from typing import Any

from prenet_gnn.common.files import write_whole
from prenet_gnn.errors import PreNetError
from prenet_gnn.tuning.space import nested
from prenet_gnn.tuning.trials import RETRY_OF, finished

BEST, TRIALS, REPORT = "best.toml", "trials.csv", "report.html"
ATTRIBUTES = ("unseen-architecture", "unseen-device", "fit_s", "latency_s", RETRY_OF)
# Importances of fewer trials are noise.
FEWEST_FOR_IMPORTANCE = 8


def best_trial(study: Any) -> Any:
    """The trial with the smallest error.

    Raises:
        PreNetError: None is complete.
    """
    complete = [t for t in finished(study) if t.state.name == "COMPLETE"]
    if not complete:
        raise PreNetError("no trial of the study is complete: run more trials.")
    return min(complete, key=lambda t: t.values[0])


def to_toml(config: dict[str, Any]) -> str:
    """A configuration of plain values and tables within tables, as TOML."""
    return "\n".join(_table("", config)).lstrip() + "\n"


def _table(path: str, table: dict[str, Any]) -> list[str]:
    """The lines of a table and of those within it; `path` is its name."""
    plain = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if not isinstance(v, dict)]
    lines = ["", f"[{path}]", *plain] if path and plain else plain
    for name, inner in table.items():
        if isinstance(inner, dict):
            lines += _table(f"{path}.{_key(name)}" if path else _key(name), inner)
    return lines


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, float):
        text = f"{value:.6g}"
        return text if any(mark in text for mark in ".en") else f"{text}.0"
    return json.dumps(value)


def trials_csv(study: Any) -> str:
    """All finished trials, one a line."""
    trials = finished(study)
    names = sorted({name for trial in trials for name in trial.params})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["number", "state", "value", *names, *ATTRIBUTES])
    for trial in sorted(trials, key=lambda t: t.number):
        value = trial.values[0] if trial.values else ""
        attributes = [trial.user_attrs.get(name, "") for name in ATTRIBUTES]
        cells = [trial.params.get(name, "") for name in names]
        writer.writerow([trial.number, trial.state.name.lower(), *map(_cell, [value, *cells])]
                        + [_cell(a) for a in attributes])  # fmt: skip
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def importances(study: Any) -> dict[str, float]:
    """How much each setting decides the error; empty for small studies."""
    import optuna

    complete = [t for t in finished(study) if t.state.name == "COMPLETE"]
    if len(complete) < FEWEST_FOR_IMPORTANCE:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(
        study, evaluator=evaluator, target=lambda t: t.values[0]
    )
    return {str(k): float(v) for k, v in found.items()}


def figures(study: Any) -> list[Any]:
    """Optuna's plots: history, importances, parallel coordinates, values while training."""
    from optuna import visualization as plots

    name = "validation MAPE"
    target: dict[str, Any] = {"target": lambda t: t.values[0], "target_name": name}
    made = [plots.plot_optimization_history(study, **target)]
    if importances(study):
        made.append(plots.plot_param_importances(study, **target))
    made.append(plots.plot_parallel_coordinate(study, **target))
    made.append(plots.plot_slice(study, **target))
    if len(study.directions) > 1:
        made.append(plots.plot_pareto_front(study, target_names=[name, "seconds per row"]))
    else:
        made.append(plots.plot_intermediate_values(study))
    return made


def write_report(study: Any, folder: Path, base: dict[str, Any]) -> Any:
    """Writes the best settings, the trials and the report; gives the best trial."""
    best = best_trial(study)
    done = finished(study)
    head = f"# Best of {len(done)} trials: validation MAPE {best.values[0]:.2%} on the sample.\n"
    write_whole(folder / BEST, head + to_toml(nested(best.params, base)))
    write_whole(folder / TRIALS, trials_csv(study))
    parts = [
        figure.to_html(full_html=False, include_plotlyjs="inline" if number == 0 else False)
        for number, figure in enumerate(figures(study))
    ]
    settings = html.escape(json.dumps(best.params, indent=1))
    write_whole(
        folder / REPORT,
        "<!doctype html><meta charset='utf-8'><title>prenet tune</title>"
        f"<h1>{len(done)} trials, best {best.values[0]:.2%}</h1><pre>{settings}</pre>"
        + "\n".join(parts),
    )
    return best
