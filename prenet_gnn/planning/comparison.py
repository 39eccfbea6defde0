"""One model on every device: time, memory and price side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from prenet_gnn.catalogue.prices import HourlyPrice, hourly_prices
from prenet_gnn.common.numbers import is_whole
from prenet_gnn.common.units import SECONDS_PER_HOUR
from prenet_gnn.errors import ConfigError, PreNetError
from prenet_gnn.planning.devices import choose_devices, unsupported_reason
from prenet_gnn.predictor.questions import check_graph, check_workload
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

SORTS = ("time", "cost")


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device's answer; costs are None where no price is known.

    Attributes:
        hardware: Name of the device.
        seconds: Time of one iteration.
        low_s: Lower end of the 90% interval.
        high_s: Upper end of the 90% interval.
        samples_per_s: Batch size over time.
        peak_memory_bytes: Peak memory of one iteration.
        fits: Whether the device has that much memory.
        usd_per_hour: Lowest known price of one device.
        price_source: Provider and date of the price.
        usd_per_million_samples: Cost of running a million samples through the model.
        cost_per_epoch_usd: Cost of one epoch, where its number of samples was given.
        pareto: No fitting device is both faster and cheaper.
    """

    hardware: str
    seconds: float
    low_s: float
    high_s: float
    samples_per_s: float
    peak_memory_bytes: int
    fits: bool
    usd_per_hour: float | None
    price_source: str
    usd_per_million_samples: float | None
    cost_per_epoch_usd: float | None
    pareto: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """All devices in order, and those left out with the reason."""

    devices: tuple[DeviceRow, ...]
    skipped: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, ready for JSON."""
        return {
            "devices": [asdict(row) for row in self.devices],
            "skipped": [{"hardware": k, "reason": v} for k, v in self.skipped.items()],
        }


def compare(
    graph: OpGraph,
    predictor: TimePredictor,
    workload: Workload,
    *,
    devices: Sequence[str | Hardware] | None = None,
    prices: Mapping[str, float] | None = None,
    samples: int | None = None,
    sort: str = "time",
) -> Comparison:
    """Predicts one iteration on every device and ranks the devices; those that do not fit go last.

    Args:
        graph: What runs; its batch size stays the same on every device.
        predictor: Answers the questions.
        workload: How it runs.
        devices: Names or entries; the whole catalogue if None.
        prices: US dollars per hour by device name, in place of the catalogue's.
        samples: Samples of one epoch, for its cost.
        sort: `time` or `cost`.
    """
    if sort not in SORTS:
        raise ConfigError(f"sort '{sort}' is not known. Allowed: {', '.join(SORTS)}.")
    check_graph(graph)
    check_workload(workload)
    if samples is not None and not (is_whole(samples) and samples > 0):
        raise ConfigError(f"samples must be a whole number above zero, not {samples!r}.")
    chosen = choose_devices(devices)
    known = hourly_prices(chosen, prices)
    skipped = {d.name: reason for d in chosen if (reason := unsupported_reason(d, workload))}
    asked = [device for device in chosen if device.name not in skipped]
    rows = [
        _row(device, prediction, graph.batch_size, known.get(device.name), samples)
        for device, prediction in zip(
            asked, _predictions(graph, predictor, workload, asked, skipped), strict=True
        )
        if prediction is not None
    ]
    return Comparison(tuple(_ranked(_marked(rows), sort)), skipped)


def front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Finds the points that no other point beats in both coordinates."""
    best = float("inf")
    kept: set[int] = set()
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if points[index][1] < best:
            best = points[index][1]
            kept.add(index)
    return kept


def _predictions(
    graph: OpGraph,
    predictor: TimePredictor,
    workload: Workload,
    devices: Sequence[Hardware],
    skipped: dict[str, str],
) -> list[Prediction | None]:
    if not devices:
        return []
    try:
        return list(
            predictor.predict_many(
                [graph] * len(devices), hardware=list(devices), workloads=[workload] * len(devices)
            )
        )
    except PreNetError:
        found: list[Prediction | None] = []
        for device in devices:
            try:
                found.append(predictor.predict(graph, hardware=device, workload=workload))
            except PreNetError as error:
                found.append(None)
                skipped[device.name] = str(error)
        return found


def _row(
    device: Hardware,
    prediction: Prediction,
    batch_size: int,
    price: HourlyPrice | None,
    samples: int | None,
) -> DeviceRow:
    usd_per_sample = None
    if price is not None:
        usd_per_sample = (
            price.usd_per_hour / SECONDS_PER_HOUR * prediction.seconds / max(batch_size, 1)
        )
    per_epoch = usd_per_sample is not None and samples is not None
    return DeviceRow(
        hardware=device.name,
        seconds=prediction.seconds,
        low_s=prediction.low_s,
        high_s=prediction.high_s,
        samples_per_s=batch_size / prediction.seconds,
        peak_memory_bytes=prediction.peak_memory_bytes,
        fits=prediction.fits,
        usd_per_hour=price.usd_per_hour if price is not None else None,
        price_source=price.source if price is not None else "",
        usd_per_million_samples=usd_per_sample * 1e6 if usd_per_sample is not None else None,
        cost_per_epoch_usd=(usd_per_sample or 0.0) * (samples or 0) if per_epoch else None,
    )


def _marked(rows: Sequence[DeviceRow]) -> list[DeviceRow]:
    priced = [
        (row.seconds, row.usd_per_million_samples, index)
        for index, row in enumerate(rows)
        if row.fits and row.usd_per_million_samples is not None
    ]
    best = {priced[i][2] for i in front([(time, cost) for time, cost, _ in priced])}
    return [replace(row, pareto=index in best) for index, row in enumerate(rows)]


def _ranked(rows: Sequence[DeviceRow], sort: str) -> list[DeviceRow]:
    def place(row: DeviceRow) -> tuple[bool, float, float]:
        cost = row.usd_per_million_samples
        first = row.seconds if sort == "time" else float("inf") if cost is None else cost
        return (not row.fits, first, row.seconds)

    return sorted(rows, key=place)
