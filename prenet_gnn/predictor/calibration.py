"""Fits a few corrections to measurements of one machine, on top of a frozen predictor.

The logarithm of measured over predicted time is linear in what a prediction consists of: a factor
for everything, factors for the shares of convolutions, products, recurrent layers, memory-bound
operators and the optimizer, for the launch-bound share (the host's speed), and for training,
compilation, layout and number format. All are shrunk towards one by their priors, so one
measurement moves little but the common factor, and more measurements free the others.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import read_json, write_whole
from prenet_gnn.errors import CheckpointError, DataError
from prenet_gnn.measuring.records import MeasuredRecord
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    import numpy as np

    from prenet_gnn.predictor.calibrated import CalibratedPredictor
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.predictor.predictor import Predictor
    from tracing import OpGraph

SCHEMA = 1
KIND = "prenet-calibration"
# Prior standard deviations of the logarithm of each factor, and what a prediction misses even with
# perfect corrections. The common factor is about as wide as the bias on new devices is, the others
# say how far efficiencies differ between operator families on one device. Chosen on the devices
# that joint fold 0 holds out, where networks of one device differ by more than devices do.
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
MODEL_NOISE = 0.2
# Single layers follow other protocols.
LAYER_NOISE = 0.3
# Degrees of freedom of the residuals: one disturbed measurement must not bend the rest.
TAIL = 4.0
# And of the factors: most devices are close to their prediction, a few are far from it.
PRIOR_TAIL = 2.0
ROBUST_ROUNDS = 10
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


def describe(prediction: Prediction, workload: Workload) -> dict[str, float]:
    """What a prediction consists of, as the values that the factors' logarithms are weighed by."""
    return features_of(prediction.by_operator(), prediction.host_s, prediction.device_s, workload)


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


def _prior(name: str) -> float:
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
        variance = self.residual_std**2 + sum((_prior(n) * features[n]) ** 2 for n in unseen)
        for i, left in enumerate(row):
            variance += sum(left * self.covariance[i][j] * right for j, right in enumerate(row))
        return math.sqrt(max(variance, 0.0))

    def apply(self, predictor: Predictor) -> CalibratedPredictor:
        """A predictor with these corrections on top."""
        from prenet_gnn.predictor.calibrated import CalibratedPredictor

        return CalibratedPredictor(predictor, self)

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


def fit_factors(
    hardware: str,
    features: Sequence[Mapping[str, float]],
    log_ratios: Sequence[float],
    noise: Sequence[float],
) -> Calibration:
    """Most probable factors given heavy-tailed priors and heavy-tailed noise.

    Args:
        hardware: Device that was measured.
        features: One row per measurement; see `describe`.
        log_ratios: Logarithm of measured over predicted seconds.
        noise: Standard deviation of each logarithm.
    """
    import numpy as np

    names = sorted({name for row in features for name, value in row.items() if value})
    matrix = np.array([[row.get(name, 0.0) for name in names] for row in features])
    target, scale = np.asarray(log_ratios, dtype=float), np.asarray(noise, dtype=float)
    width = np.array([_prior(name) for name in names])
    trust, pull = np.ones(len(target)), np.ones(len(names))
    for _ in range(ROBUST_ROUNDS):
        weight = trust / scale**2
        prior = np.diag(pull / width**2)
        covariance = np.linalg.inv(prior + (matrix.T * weight) @ matrix)
        found = covariance @ (matrix.T * weight) @ target
        residual = target - matrix @ found
        trust = (TAIL + 1.0) / (TAIL + (residual / scale) ** 2)
        pull = (PRIOR_TAIL + 1.0) / (PRIOR_TAIL + (found / width) ** 2)
    return Calibration(
        hardware=hardware,
        records=len(target),
        log_factors={name: float(value) for name, value in zip(names, found, strict=True)},
        covariance=tuple(tuple(float(v) for v in row) for row in covariance),
        residual_std=_residual_std(residual, trust),
    )


def _residual_std(residual: np.ndarray[Any, Any], trust: np.ndarray[Any, Any]) -> float:
    """Spread of the residuals, drawn to the usual noise where there are few."""
    prior_weight = 4.0
    total = float((trust * residual**2).sum()) + prior_weight * MODEL_NOISE**2
    return math.sqrt(total / (float(trust.sum()) + prior_weight))


def usable_records(
    records: Iterable[MeasuredRecord], hardware: str | None = None
) -> tuple[MeasuredRecord, ...]:
    """Records with a time, all of one device.

    Raises:
        DataError: There is none, or there are several devices and none was chosen.
    """
    found = tuple(r for r in records if r.status == "ok" and r.seconds)
    devices = sorted({r.hardware for r in found})
    if hardware is not None:
        found = tuple(r for r in found if r.hardware == hardware)
    if not found:
        hint = f" of '{hardware}' (there are: {', '.join(devices)})" if hardware else ""
        raise DataError(f"no measured time{hint} to calibrate with; run 'prenet measure' first.")
    if hardware is None and len(devices) > 1:
        raise DataError(f"the records are of several devices ({', '.join(devices)}); keep one.")
    return found


def fit_calibration(
    records: Iterable[MeasuredRecord],
    predictor: Predictor,
    hardware: str | None = None,
    graph_of: Callable[[MeasuredRecord], OpGraph] | None = None,
) -> Calibration:
    """Fits corrections to measured records; one is enough, ten free the finer factors.

    Args:
        records: Measurements of one device.
        predictor: The frozen predictor, without corrections.
        hardware: Device to use where the records are of several.
        graph_of: Traces a record's model; None builds it from its spec.
    """
    chosen = usable_records(records, hardware)
    if graph_of is None:
        from prenet_gnn.predictor.calibrated import GraphSource

        graph_of = GraphSource()
    features, ratios, noise = [], [], []
    for record in chosen:
        graph = graph_of(record)
        device = measured_device(record)
        prediction = predictor.predict(graph, hardware=device, workload=record.workload)
        assert record.seconds is not None
        features.append(describe(prediction, record.workload))
        ratios.append(math.log(record.seconds / prediction.seconds))
        noise.append(_noise(record))
    return fit_factors(chosen[0].hardware, features, ratios, noise)


def calibrate(predictor: Predictor, records: Iterable[MeasuredRecord]) -> Calibration:
    """Fits corrections to measured records of one device; see `fit_calibration`."""
    return fit_calibration(records, predictor)


def _noise(record: MeasuredRecord) -> float:
    base = LAYER_NOISE if record.model.startswith("layer:") else MODEL_NOISE
    assert record.seconds is not None
    mean_error = (record.std_s or 0.0) / record.seconds / math.sqrt(max(len(record.samples_s), 1))
    return math.hypot(base, mean_error)


def measured_device(record: MeasuredRecord) -> Any:
    """The catalogue's name, or the entry that was measured where the catalogue has none."""
    if record.hardware_entry is None:
        return record.hardware
    from prenet_gnn.catalogue.reading import device_from

    return device_from(record.hardware_entry, f"record of {record.hardware}")
