"""Bar plots as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

Series = Mapping[str, Sequence[float]]


def bars(
    path: Path, groups: Sequence[str], series: Series, *, title: str, unit: str,
    spreads: Series | None = None, logarithmic: bool = False,
) -> None:  # fmt: skip
    """Horizontal bars, one colour per series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = 0.8 / max(len(series), 1)
    size = (8, 1.2 + 0.22 * len(groups) * max(len(series), 1))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    for number, (name, values) in enumerate(series.items()):
        places = [i + (number - (len(series) - 1) / 2) * height for i in range(len(groups))]
        axes.barh(places, values, height, label=name, xerr=(spreads or {}).get(name), capsize=2)
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.set_xlabel(unit)
    if logarithmic:
        axes.set_xscale("log")
    if len(series) > 1:
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": ""})
    pyplot.close(figure)
