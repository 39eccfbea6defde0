"""How wide 90% intervals are: by device, mode and how far the graph is from those of training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# Half-width of the interval, as a natural logarithm, when the weights name none.
DEFAULT_HALF_WIDTH = 0.3
# Half-width that a framework without a version adds: between two versions the logarithm of the time
# of one model on one card differs by 0.23 (root mean square; timm inference on an RTX 3090, PyTorch
# 1.10 to 2.4) to 0.27 (torchvision on an A100, 1.7 against 1.12); 90% lie within 1.645 of it.
UNKNOWN_FRAMEWORK_HALF_WIDTH = 1.645 * 0.27
# Two-sided 90% of a normal distribution.
Z_90 = 1.645
# How much wider intervals are outside of what was seen, when the weights do not say.
OUTSIDE_FACTOR = 1.5
# How near a graph is to those of training, by which intervals differ.
ZONES = ("near", "inside", "outside")
DEVICES = ("known_device", "new_device")


class Situation(NamedTuple):
    """What the width of an interval depends on.

    Attributes:
        device: One of `DEVICES`: whether training had iterations of it in this number format.
        mode: `train` or `infer`; empty for both.
        zone: One of `ZONES`; empty for all.
    """

    device: str
    mode: str = ""
    zone: str = ""

    @classmethod
    def parse(cls, text: str) -> Situation:
        """Reads `known_device|train|near`, of which the last parts may be left out.

        Raises:
            ValueError: A part is not known.
        """
        found = cls(*text.split("|"))
        if found.device not in DEVICES or found.zone not in ("", *ZONES):
            raise ValueError(f"no interval is called '{text}'")
        return found

    def __str__(self) -> str:
        """The parts as `parse` reads them."""
        return "|".join(part for part in self if part)


@dataclass(frozen=True)
class Intervals:
    """Half-widths of 90% intervals, in natural logarithm, by situation."""

    half_widths: Mapping[Situation, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, float]) -> Intervals:
        """Reads half-widths by the text of their situation."""
        return cls({Situation.parse(name): float(value) for name, value in data.items()})

    def to_dict(self) -> dict[str, float]:
        """Half-widths by the text of their situation."""
        return {str(situation): value for situation, value in self.half_widths.items()}

    def base(self, situation: Situation) -> float:
        """The half-width of a situation, or of the nearest that is stated."""
        device, mode, zone = situation
        known = self.half_widths
        plain = known.get(Situation(device, mode), known.get(Situation(device), DEFAULT_HALF_WIDTH))
        if zone == "outside":
            plain = OUTSIDE_FACTOR * plain
        elif zone == "near":
            plain = known.get(Situation(device, mode, "inside"), plain)
        return known.get(situation, plain)

    def half_width(self, situation: Situation, spread: float, any_version: bool) -> float:
        """The half-width of one prediction.

        Args:
            situation: What it depends on.
            spread: Standard deviation of the logarithm between the networks of the ensemble.
            any_version: The version of the framework is not known.
        """
        version = UNKNOWN_FRAMEWORK_HALF_WIDTH if any_version else 0.0
        return math.hypot(self.base(situation), Z_90 * spread, version)
