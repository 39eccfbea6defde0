"""One HTML file with everything about a prediction; nothing in it is loaded from elsewhere."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import write_whole
from prenet_gnn.common.units import bytes_text, count_text, rate_text, time_text
from prenet_gnn.common.version import VERSION
from prenet_gnn.memory.peak import usable_bytes
from prenet_gnn.reporting import charts

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.planning import Comparison, DeviceRow, Plan
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

PACKAGES = ("torch", "torch-geometric", "timm", "torchvision", "transformers", "plotly")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1180px;padding:1.5rem;color:#1a202c}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin:2rem 0 .4rem}
.facts{display:flex;flex-wrap:wrap;gap:.8rem;margin:1rem 0}
.fact{border:1px solid #e2e8f0;border-radius:8px;padding:.6rem 1rem;min-width:8rem}
.fact b{display:block;font-size:1.25rem}.warn{background:#fffaf0;border-left:4px solid #dd6b20;
padding:.4rem .8rem;margin:.3rem 0}.note{color:#4a5568}
table{border-collapse:collapse;font-size:.9rem}td,th{padding:.2rem .7rem;text-align:right;
border-bottom:1px solid #edf2f7;vertical-align:top}td:first-child,th:first-child{text-align:left}
details{margin:.6rem 0}summary{cursor:pointer;font-weight:600}
.wide{overflow-x:auto}
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What a report shows.

    Attributes:
        title: The first line.
        graph: The graph that was predicted.
        hardware: The device of `prediction`.
        prediction: The iteration that is broken down.
        comparison: All devices; None leaves their charts out.
        plan: A plan; None leaves its part out.
        inputs: What was asked, by name.
        weights: Facts about the weights, `Checkpoint.facts`.
    """

    title: str
    graph: OpGraph
    hardware: Hardware
    prediction: Prediction
    comparison: Comparison | None = None
    plan: Plan | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)


def write_report(path: str | Path, report: Report) -> None:
    """Writes a report, whole or not at all."""
    write_whole(Path(path), page(report))


def page(report: Report) -> str:
    """The report as HTML text, plotly.js included."""
    from plotly.offline import get_plotlyjs

    body = "".join(_sections(report))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        # An empty icon, so that a browser does not ask a server for one
        '<link rel="icon" href="data:,">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>"
        f"<h1>{escape(report.title)}</h1>{body}</body></html>\n"
    )


def _sections(report: Report) -> Iterator[str]:
    p = report.prediction
    yield _summary(report)
    yield "".join(f'<div class="warn">{escape(text)}</div>' for text in p.warnings)
    if report.plan is not None:
        yield _plan(report.plan)
    if report.comparison is not None:
        yield _devices(report.comparison)
    yield _chart("module", "Time by module", "Click a box to zoom in, its parent to zoom out.",
                 charts.by_module(p))  # fmt: skip
    others = {n: s for n, s in p.by_operator().items() if n in ("(optimizer)", "(other)")}
    yield _chart("operator", "Time by operator", "", charts.by_operator(p.calls, others))
    curve = charts.memory_over_time(p.memory_moments, usable_bytes(report.hardware))
    note = (
        "Allocated tensors, without the workspaces of libraries and the context: the peak above "
        "holds those."
    )
    yield _chart("memory", "Memory over one iteration", note, curve)
    yield _inputs(report)


def _summary(report: Report) -> str:
    p = report.prediction
    facts = [
        ("iteration", time_text(p.seconds)),
        ("90% interval", f"{time_text(p.low_s)} to {time_text(p.high_s)}"),
        ("samples per second", rate_text(p.samples_per_s)),
    ]
    if p.workload.mode == "train":
        parts = (p.forward_s, p.backward_s, p.optimizer_s)
        facts.append(("forward, backward, optimizer", " + ".join(time_text(s) for s in parts)))
    fits = "fits" if p.fits else "does not fit"
    facts.append((f"peak memory: {fits}", bytes_text(p.peak_memory_bytes)))
    facts.append(("device", p.hardware))
    boxes = "".join(
        f'<div class="fact">{escape(name)}<b>{escape(value)}</b></div>' for name, value in facts
    )
    return f'<div class="facts" id="summary">{boxes}</div>'


def _devices(comparison: Comparison) -> str:
    rows = comparison.devices
    note = (
        "Orange: no device that fits is both faster and cheaper. Bars: 90% intervals. "
        f"{len(rows)} devices, the {charts.SHOWN_DEVICES} fastest that fit are drawn."
    )
    parts = [_chart("devices", "Devices by time", note, charts.devices_by_time(rows))]
    if any(row.fits and row.usd_per_million_samples is not None for row in rows):
        note = "Cheapest known price of each device; provider and date are in the table below."
        parts.append(_chart("cost", "Devices by time and cost", note, charts.devices_by_cost(rows)))
    parts.append(_details("all devices", _device_table(rows)))
    skipped = [(name, reason) for name, reason in comparison.skipped.items()]
    if skipped:
        parts.append(_details(f"left out ({len(skipped)})", _table(("device", "why"), skipped)))
    return "".join(parts)


def _device_table(rows: Sequence[DeviceRow]) -> str:
    columns = ("device", "iteration", "90% interval", "samples/s", "memory", "USD/h",
               "USD/M samples", "price of")  # fmt: skip
    return _table(
        columns,
        [
            (
                row.hardware,
                time_text(row.seconds),
                f"{time_text(row.low_s)} to {time_text(row.high_s)}",
                rate_text(row.samples_per_s),
                bytes_text(row.peak_memory_bytes) if row.fits else "does not fit",
                "" if row.usd_per_hour is None else f"{row.usd_per_hour:.2f}",
                ""
                if row.usd_per_million_samples is None
                else f"{row.usd_per_million_samples:,.2f}",
                row.price_source,
            )
            for row in rows
        ],
    )


def _plan(plan: Plan) -> str:
    columns = ("device", "batch", "settings", "time", "90% interval", "USD", "kWh", "memory")
    rows = [
        (
            option.device_text,
            option.batch_text,
            option.settings,
            time_text(option.total_s),
            f"{time_text(option.total_low_s)} to {time_text(option.total_high_s)}",
            "" if option.cost_usd is None else f"{option.cost_usd:,.2f}",
            "" if option.energy_kwh is None else f"{option.energy_kwh:,.1f}",
            bytes_text(option.peak_memory_bytes),
        )
        for option in (plan.best, *plan.alternatives)
    ]
    notes = "".join(f'<div class="warn">{escape(n)}</div>' for n in (*plan.binding, *plan.notes))
    text = f'<h2 id="plan">Plan: the best option, then the best of other devices</h2>{notes}'
    text += f'<div class="wide">{_table(columns, rows)}</div>'
    if len(plan.trade_off) > 1:
        note = "Options that no other beats in both, with 90% intervals."
        text += _chart("tradeoff", "Time against cost", note, charts.trade_off(plan.trade_off))
    return text


def _inputs(report: Report) -> str:
    graph, device = report.graph, report.hardware
    asked = {**report.inputs, **asdict(report.prediction.workload)}
    model = {
        "operators": len(graph.nodes),
        "batch size": graph.batch_size,
        "mode": graph.mode,
        "parameters": f"{graph.total_params:,}",
        "forward": f"{count_text(graph.total_flops)}FLOP",
        "backward": f"{count_text(graph.total_backward_flops)}FLOP",
        **{f"input {name}": f"{s.shape} {s.dtype}" for name, s in graph.inputs.items()},
        **{name: value for name, value in graph.meta.items() if name != "unknown_ops"},
    }
    tables = (
        ("what was asked", asked),
        ("the traced model", model),
        ("the device", {k: v for k, v in asdict(device).items() if v not in (None, "", ())}),
        ("memory at the peak", {n: bytes_text(v) for n, v in report.prediction.memory.items()}),
        ("the weights", report.weights),
        ("versions", versions()),
    )
    return '<h2 id="inputs">Inputs and versions</h2>' + "".join(
        _details(name, _table(("", ""), [(k, _plain(v)) for k, v in values.items()]))
        for name, values in tables
        if values
    )


def versions() -> dict[str, str]:
    """Versions of everything that shapes the figures."""
    found = {"prenet-gnn": VERSION, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(each) for each in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _chart(name: str, title: str, note: str, figure: Any) -> str:
    chart = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"chart-{name}",
        config={"displaylogo": False, "responsive": True},
    )
    return f'<h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{chart}'


def _details(title: str, inside: str) -> str:
    return f'<details><summary>{escape(title)}</summary><div class="wide">{inside}</div></details>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        inside = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        return f"<tr>{inside}</tr>"

    head = line(columns, "th") if any(columns) else ""
    return f"<table>{head}{''.join(line(row, 'td') for row in rows)}</table>"
