"""The charts of a report, as plotly figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.units import SECONDS_PER_HOUR, bytes_text, rate_text, time_text

if TYPE_CHECKING:
    from prenet_gnn.memory.iteration import MemoryMoment
    from prenet_gnn.planning import DeviceRow, Option
    from prenet_gnn.predictor.prediction import CallShare, Prediction

SHOWN_DEVICES = 30
SHOWN_OPERATORS = 15
# Points of the memory chart; more than a screen is wide only makes the file larger.
CURVE_POINTS = 1500
SHOWN_LEVELS = 4
_BLUE, _ORANGE, _GREY, _GREEN = "#2b6cb0", "#dd6b20", "#a0aec0", "#2f855a"
# (what, field of a moment, colour), from the bottom of the stack upwards
_LAYERS = (
    ("weights and optimizer state", "lasting_bytes", _GREY),
    ("gradients", "gradient_bytes", _ORANGE),
    ("activations", "activation_bytes", _BLUE),
    ("temporary", "temporary_bytes", _GREEN),
)


def devices_by_time(rows: Sequence[DeviceRow]) -> Any:
    """Bars of the fastest devices with their intervals."""
    import plotly.graph_objects as go

    shown = [row for row in rows if row.fits] or list(rows)
    shown = sorted(shown, key=lambda row: row.seconds)[:SHOWN_DEVICES][::-1]
    bars = go.Bar(
        y=[escape(row.hardware) for row in shown],
        x=[row.seconds for row in shown],
        error_x=_interval(
            [row.seconds for row in shown],
            [row.low_s for row in shown],
            [row.high_s for row in shown],
        ),
        orientation="h",
        marker_color=[_ORANGE if row.pareto else _BLUE for row in shown],
        customdata=[_device_text(row) for row in shown],
        hovertemplate="%{customdata}<extra></extra>",
    )
    return _styled(go.Figure(bars), "seconds per iteration", "", height=120 + 20 * len(shown))


def devices_by_cost(rows: Sequence[DeviceRow]) -> Any:
    """Time against cost of every priced device that fits; the front is marked."""
    import plotly.graph_objects as go

    figure = go.Figure()
    priced = [row for row in rows if row.fits and row.usd_per_million_samples is not None]
    for name, pareto, colour in (
        ("other devices", False, _BLUE),
        ("none is better", True, _ORANGE),
    ):
        part = [row for row in priced if row.pareto == pareto]
        figure.add_trace(
            go.Scatter(
                x=[row.seconds for row in part],
                y=[row.usd_per_million_samples for row in part],
                mode="markers+text" if pareto else "markers",
                text=[escape(row.hardware) for row in part],
                textposition="top right",
                customdata=[_device_text(row) for row in part],
                hovertemplate="%{customdata}<extra></extra>",
                marker={"size": 9, "color": colour},
                name=name,
            )
        )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return _styled(figure, "seconds per iteration", "US dollars per million samples")


def by_module(prediction: Prediction) -> Any:
    """Seconds by module as nested boxes; a click zooms into one."""
    import plotly.graph_objects as go

    ids, labels, parents, seconds = module_tree(prediction)
    middle = max(seconds, default=0.0) / 4
    figure = go.Figure(
        go.Icicle(
            ids=ids,
            labels=[escape(label) for label in labels],
            parents=parents,
            values=seconds,
            branchvalues="total",
            maxdepth=SHOWN_LEVELS,
            customdata=[time_text(value) for value in seconds],
            texttemplate="%{label}<br>%{customdata}, %{percentRoot:.1%}",
            hovertemplate="%{id}<br>%{customdata}, %{percentRoot:.1%} of all, "
            "%{percentParent:.1%} of the module around it<extra></extra>",
            tiling={"orientation": "v"},
            marker={
                "colors": seconds,
                "colorscale": "Blues",
                "cmid": middle,
            },
        )
    )
    return _styled(figure, "", "", height=520)


def module_tree(
    prediction: Prediction,
) -> tuple[list[str], list[str], list[str], list[float]]:
    """Ids, labels, parents and seconds of all modules; a module's seconds hold its children's."""
    own: dict[tuple[str, ...], float] = {}
    for call in prediction.calls:
        path = (*(call.module.split(".") if call.module else ()), f"({call.operator})")
        own[path] = own.get(path, 0.0) + call.seconds
    grouped = prediction.by_module(depth=1)
    for name in ("(optimizer)", "(other)"):
        if grouped.get(name, 0.0) > 0:
            own[(name,)] = grouped[name]
    sums: dict[tuple[str, ...], float] = {}
    for path, seconds in own.items():
        for depth in range(len(path) + 1):
            sums[path[:depth]] = sums.get(path[:depth], 0.0) + seconds
    root = prediction.model or "model"
    ids = ["/".join((root, *path)) for path in sums]
    labels = [path[-1] if path else root for path in sums]
    parents = ["/".join((root, *path[:-1])) if path else "" for path in sums]
    return ids, labels, parents, list(sums.values())


def by_operator(calls: Sequence[CallShare], others: Mapping[str, float]) -> Any:
    """Bars of the costliest operators, forward and backward."""
    import plotly.graph_objects as go

    sums: dict[str, list[float]] = {}
    for call in calls:
        pair = sums.setdefault(call.operator, [0.0, 0.0])
        pair[0] += call.forward_s
        pair[1] += call.backward_s
    for name, value in others.items():
        sums[name] = [value, 0.0]
    shown = sorted(sums, key=lambda name: sum(sums[name]))[-SHOWN_OPERATORS:]
    figure = go.Figure()
    for place, (name, colour) in enumerate((("forward or other", _BLUE), ("backward", _ORANGE))):
        figure.add_trace(
            go.Bar(
                y=[escape(each) for each in shown],
                x=[sums[each][place] for each in shown],
                orientation="h",
                name=name,
                marker_color=colour,
                customdata=[time_text(sums[each][place]) for each in shown],
                hovertemplate="%{y}: %{customdata}<extra>" + name + "</extra>",
            )
        )
    figure.update_layout(barmode="stack")
    return _styled(figure, "seconds per iteration", "", height=140 + 22 * len(shown))


def memory_over_time(moments: Sequence[MemoryMoment], limit_bytes: float) -> Any:
    """Allocated memory call by call, stacked, with the device's limit."""
    import plotly.graph_objects as go

    step = max(1, -(-len(moments) // CURVE_POINTS))
    # The highest moment of every stretch, so that thinning never hides a peak
    kept = [
        max(range(start, min(start + step, len(moments))), key=lambda i: moments[i].allocated_bytes)
        for start in range(0, len(moments), step)
    ]
    figure = go.Figure()
    for name, field, colour in _LAYERS:
        sizes = [getattr(moments[i], field) for i in kept]
        figure.add_trace(
            go.Scatter(
                x=kept,
                y=[size / 2**30 for size in sizes],
                stackgroup="memory",
                name=name,
                line={"width": 0.5, "color": colour},
                customdata=[
                    f"{bytes_text(size)} ({moments[i].phase})"
                    for size, i in zip(sizes, kept, strict=True)
                ],
                hovertemplate="%{customdata}<extra>" + name + "</extra>",
            )
        )
    peak = max((moments[i].allocated_bytes for i in kept), default=0)
    if limit_bytes < 4 * peak:
        figure.add_hline(
            y=limit_bytes / 2**30, line_dash="dash", annotation_text="memory that programs can use"
        )
    return _styled(figure, "operator calls: forward, backward, optimizer step", "GiB")


def trade_off(options: Sequence[Option]) -> Any:
    """Time against cost of the options that none beats, with their intervals."""
    import plotly.graph_objects as go

    hours = [option.total_s / SECONDS_PER_HOUR for option in options]
    costs = [option.cost_usd or 0.0 for option in options]

    line = go.Scatter(
        x=hours,
        y=costs,
        mode="lines+markers+text",
        text=[escape(option.hardware) for option in options],
        textposition="top right",
        customdata=[f"{escape(o.hardware)}, batch {o.batch_size}, {o.settings}" for o in options],
        hovertemplate="%{customdata}<br>%{x:.3g} h, %{y:.2f} USD<extra></extra>",
        error_x=_interval(
            hours,
            [option.total_low_s / SECONDS_PER_HOUR for option in options],
            [option.total_high_s / SECONDS_PER_HOUR for option in options],
            color=_GREY,
        ),
        error_y=_interval(
            costs,
            [option.cost_low_usd or 0.0 for option in options],
            [option.cost_high_usd or 0.0 for option in options],
            color=_GREY,
        ),
        marker={"size": 9, "color": _ORANGE},
        line={"color": _BLUE, "shape": "hv"},
    )
    return _styled(go.Figure(line), "hours", "US dollars")


def _interval(
    values: Sequence[float], low: Sequence[float], high: Sequence[float], **style: str
) -> dict[str, Any]:
    """Error bars from a lower to an upper end."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [end - value for end, value in zip(high, values, strict=True)],
        "arrayminus": [value - end for end, value in zip(low, values, strict=True)],
        "thickness": 1,
        **style,
    }


def _device_text(row: DeviceRow) -> str:
    lines = [
        f"<b>{escape(row.hardware)}</b>",
        f"{time_text(row.seconds)} ({time_text(row.low_s)} to {time_text(row.high_s)})",
        f"{rate_text(row.samples_per_s)} samples/s, {bytes_text(row.peak_memory_bytes)}",
    ]
    if row.usd_per_hour is not None and row.usd_per_million_samples is not None:
        lines.append(
            f"{row.usd_per_million_samples:,.2f} USD per million samples at "
            f"{row.usd_per_hour:.2f} USD/h ({escape(row.price_source)})"
        )
    return "<br>".join(lines)


def _styled(figure: Any, x: str, y: str, height: int = 460) -> Any:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 10, "r": 10, "t": 50, "b": 40},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0},
    )
    figure.update_xaxes(title_text=x, automargin=True)
    figure.update_yaxes(title_text=y, automargin=True)
    return figure
