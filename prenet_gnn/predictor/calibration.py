"""A few corrections for one machine, on top of a frozen predictor.

The logarithm of measured over predicted time is linear in what a prediction consists of: a factor
for everything, factors for the shares of convolutions, products, recurrent layers, memory-bound
operators and the optimizer, for the launch-bound share (the host's speed), and for training,
compilation, layout and number format. What no factor was fitted for has its prior's spread.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import read_json, write_whole
from prenet_gnn.errors import CheckpointError

if TYPE_CHECKING:
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.workload.workload import Workload

SCHEMA = 1
KIND = "prenet-calibration"
# Prior standard deviations of the logarithm of each factor. The common factor is about as wide as
# the bias on new devices is, the others say how far efficiencies differ between operator families
# on one device. Chosen on the devices that joint fold 0 holds out, where networks of one device
# differ by more than devices do.
PRIORS = {
    "all": 0.2,
    "train": 0.1,
    "conv": 0.2,
    "matmul": 0.2,
    "recurrent": 0.2,
    "memory": 0.2,
    "optimizer": 0.2,
    "launch": 0.25,
    "compiled": 0.1,
    "channels_last": 0.1,
}
PRECISION_PRIOR = 0.1
# From here on the residuals say how wide an interval must be.
MIN_RECORDS_FOR_SPREAD = 8
# Two-sided 90% of a normal distribution
Z_90 = 1.645
FAMILIES = (
    ("conv", ("conv",)),
    ("recurrent", ("lstm", "gru", "rnn", "recurrent")),
    ("optimizer", ("(optimizer)",)),
    ("matmul", ("linear", "matmul", "mm", "attention", "sdpa", "einsum")),
)


def family_of(operator: str) -> str:
    """Operator family whose efficiency a device shares."""
    name = operator.lower()
    return next((f for f, words in FAMILIES if any(w in name for w in words)), "memory")


def describe(prediction: Prediction) -> dict[str, float]:
    """What a prediction consists of, as the values that the factors' logarithms are weighed by."""
    p = prediction
    return features_of(p.by_operator(), p.host_s, p.device_s, p.workload)


def features_of(
    operator_s: Mapping[str, float], host_s: float, device_s: float, workload: Workload
) -> dict[str, float]:
    """The same from its parts: seconds by operator, of the host and of the device."""
    features = {"all": 1.0, "train": float(workload.mode == "train")}
    seconds = {name: max(part_s, 0.0) for name, part_s in operator_s.items()}
    total = sum(seconds.values())
    for operator, part_s in seconds.items():
        family = family_of(operator)
        features[family] = features.get(family, 0.0) + (part_s / total if total > 0 else 0.0)
    both = host_s + device_s
    features["launch"] = host_s / both if both > 0 else 0.0
    features["compiled"] = float(workload.compiled)
    features["channels_last"] = float(workload.channels_last)
    if workload.precision != "fp32":
        features[f"precision:{workload.precision}"] = 1.0
    return features


def prior_std(name: str) -> float:
    """Standard deviation of the logarithm of a factor that no measurement has seen."""
    return PRIORS.get(name, PRECISION_PRIOR)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrections for one device.

    Attributes:
        hardware: Device that was measured.
        records: Number of measurements behind the fit.
        log_factors: Logarithm of each factor by its name; what is missing is one.
        covariance: Posterior covariance of the logarithms, in the order of `log_factors`.
        residual_std: Spread of what is left, as a standard deviation of the logarithm.
    """

    hardware: str
    records: int
    log_factors: dict[str, float]
    covariance: tuple[tuple[float, ...], ...]
    residual_std: float

    def factor(self, features: Mapping[str, float]) -> float:
        """What to multiply a predicted time by; see `describe`."""
        log = sum(self.log_factors.get(name, 0.0) * value for name, value in features.items())
        return math.exp(max(-5.0, min(5.0, log)))

    def log_std(self, features: Mapping[str, float]) -> float:
        """Standard deviation of the logarithm of a corrected time."""
        row = [features.get(name, 0.0) for name in self.log_factors]
        unseen = [n for n in features if n not in self.log_factors]
        variance = self.residual_std**2 + sum((prior_std(n) * features[n]) ** 2 for n in unseen)
        for i, left in enumerate(row):
            variance += sum(left * self.covariance[i][j] * right for j, right in enumerate(row))
        return math.sqrt(max(variance, 0.0))

    def correct(self, prediction: Prediction) -> Prediction:
        """The prediction with its times corrected; one of another device keeps them."""
        if prediction.hardware != self.hardware:
            warning = f"the calibration is for {self.hardware} and was not used"
            return dataclasses.replace(prediction, warnings=(*prediction.warnings, warning))
        features = describe(prediction)
        result = prediction.scaled_by(self.factor(features))
        if self.records < MIN_RECORDS_FOR_SPREAD:
            return result
        width = math.exp(Z_90 * self.log_std(features))
        return dataclasses.replace(
            result,
            low_s=max(result.low_s, result.seconds / width),
            high_s=min(result.high_s, result.seconds * width),
        )

    def to_json(self) -> str:
        """The corrections as text that `from_json` reads."""
        values = {"kind": KIND, "schema": SCHEMA} | dataclasses.asdict(self)
        return json.dumps(values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Reads what `to_json` wrote.

        Raises:
            CheckpointError: The text is no calibration, or of a newer version.
        """
        try:
            values = read_json(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"a calibration is JSON: {error}.") from None
        if not isinstance(values, dict) or values.get("kind") != KIND:
            raise CheckpointError("this is no calibration; make one with 'prenet calibrate'.")
        if values.get("schema") != SCHEMA:
            raise CheckpointError(
                f"calibration schema {values.get('schema')} is not {SCHEMA}; calibrate again."
            )
        try:
            return cls(
                hardware=str(values["hardware"]),
                records=int(values["records"]),
                log_factors={str(k): _finite(v) for k, v in values["log_factors"].items()},
                covariance=tuple(tuple(map(_finite, row)) for row in values["covariance"]),
                residual_std=_finite(values["residual_std"]),
            )._checked()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"the calibration is damaged ({error}); make it again.") from None

    def _checked(self) -> Calibration:
        size = len(self.log_factors)
        if len(self.covariance) != size or any(len(row) != size for row in self.covariance):
            raise ValueError("covariance has the wrong size")
        return self

    def save(self, path: Path | str) -> None:
        """Writes the corrections to a JSON file, whole or not at all."""
        try:
            write_whole(path, self.to_json() + "\n")
        except OSError as error:
            raise CheckpointError(f"cannot write {path}: {error.strerror}.") from None

    def __str__(self) -> str:
        """The factors, in a line each."""
        lines = [f"{self.hardware}: corrections from {self.records} measurements"]
        lines += [f"  {name:<18} x {math.exp(v):.3f}" for name, v in self.log_factors.items()]
        return "\n".join([*lines, f"  left over          {100 * self.residual_std:.1f}%"])


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


def load_calibration(path: Path | str) -> Calibration:
    """Reads a calibration file.

    Raises:
        CheckpointError: The file is missing, damaged or of another version.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise CheckpointError(f"cannot read calibration {path}: {reason}.") from None
    try:
        return Calibration.from_json(text)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
