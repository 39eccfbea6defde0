"""What the commands that write an HTML report share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prenet_gnn.predictor.interface import TimePredictor

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


def facts_of(predictor: TimePredictor) -> dict[str, Any]:
    """What a report says about the weights."""
    facts = predictor.checkpoint.facts.to_dict()
    shown = {name: facts[name] for name in _SHOWN_FACTS if name in facts}
    return {**shown, "members": len(predictor.checkpoint.models)}
