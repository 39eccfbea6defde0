"""Writes the HTML report of a command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prenet_gnn.planning import Comparison, Plan
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

# Facts about the weights that fit a line of a table.
_SHOWN_FACTS = ("rows", "sources", "devices", "versions", "commit")


def check_report(path: Path | None) -> None:
    """Refuses a report before the work is done rather than after it."""
    from prenet_gnn.errors import ConfigError

    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a report is an HTML file: name it {path.with_suffix('.html')}.")
    import plotly  # noqa: F401


def write(
    path: Path,
    title: str,
    graph: OpGraph,
    prediction: Prediction,
    predictor: TimePredictor,
    *,
    hardware: Any = None,
    comparison: Comparison | None = None,
    plan: Plan | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> None:
    """Puts together what a report shows and writes it."""
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.reporting import Report, write_report

    facts = predictor.checkpoint.facts
    weights = {name: facts[name] for name in _SHOWN_FACTS if name in facts}
    weights["members"] = len(predictor.checkpoint.models)
    report = Report(
        title=title,
        graph=graph,
        hardware=hardware or get_hardware(prediction.hardware),
        prediction=prediction,
        comparison=comparison,
        plan=plan,
        inputs=dict(inputs or {}),
        weights=weights,
    )
    write_report(path, report)
