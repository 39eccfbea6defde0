"""Scores by split and predictor, as a table and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prenet_gnn.errors import DataError
from prenet_gnn.training.metrics import Scores

HEAD = f"{'split':<24}{'predictor':<12}{'rows':>7}{'MAPE':>8}{'median':>8}{'p90':>8}{'bias':>8}"


@dataclass(frozen=True)
class Line:
    """Scores of a predictor on the rows of a split."""

    split: str
    predictor: str
    scores: Scores

    def to_dict(self) -> dict[str, Any]:
        """The line as plain data."""
        return {"split": self.split, "predictor": self.predictor, **self.scores.to_dict()}

    def __str__(self) -> str:
        """The line of a table for the terminal."""
        s = self.scores
        return (
            f"{self.split:<24}{self.predictor:<12}{s.rows:>7}{s.mape:>8.1%}{s.median_ape:>8.1%}"
            f"{s.p90_ape:>8.1%}{s.bias:>+8.1%}"
        )


@dataclass(frozen=True)
class Report:
    """Scores by split and predictor, with what they were measured with."""

    lines: tuple[Line, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The scores as plain data; None where too few rows give no figure."""
        return {"scores": [line.to_dict() for line in self.lines], **self.facts}

    def __str__(self) -> str:
        """A table for the terminal."""
        facts = (f"{name}: {value}" for name, value in self.facts.items())
        return "\n".join([HEAD, *map(str, self.lines), *facts])


def stored_report(facts: Mapping[str, Any]) -> Report:
    """The figures that were measured when the weights were made.

    Raises:
        DataError: The weights carry none.
    """
    accuracy = facts.get("accuracy")
    if not accuracy:
        raise DataError(
            "these weights carry no scores: run `prenet evaluate --fold 0` with the measured data."
        )
    lines = tuple(
        Line(str(row["split"]), str(row["predictor"]), Scores.from_dict(row))
        for row in accuracy["scores"]
    )
    return Report(lines, {k: v for k, v in accuracy.items() if k != "scores"})
