"""Points of a sweep, read from a TOML file: sampled layers and whole models over their settings."""

from __future__ import annotations

import itertools
import math
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prenet_gnn.errors import ConfigError
from prenet_gnn.measuring.models import FAMILIES, format_spec, parse_spec
from prenet_gnn.measuring.point import Point
from prenet_gnn.workload.workload import Workload

SWEEP_KEYS = {
    "description",
    "seed",
    "threads",
    "sample_s",
    "min_samples",
    "warmup_s",
    "max_iteration_s",
    "memory",
    "layers",
    "models",
}
LAYER_KEYS = {"family", "count", "ranges", "choices", "max_gflops", "max_mbytes", "workloads"}
MODEL_KEYS = {"specs", "batch_sizes", "image_sizes", "seq_lens", "workloads", "sample"}
SIZES = ("batch_size", "image_size", "seq_len")
# A sampler that finds no allowed point in this many draws has ranges that contradict its limits
MAX_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Sweep:
    """Points in the order of measuring, and how much time each may take.

    The order is shuffled, so that a sweep cut short is still a fair sample; points of one series
    keep their order by batch size, so that what did not fit spares the larger ones.
    """

    name: str
    points: tuple[Point, ...]
    threads: int | None = None
    sample_s: float = 1.0
    min_samples: int = 5
    warmup_s: float = 2.0
    max_iteration_s: float = math.inf
    memory: bool = True
    description: str = field(default="", compare=False)


def sweep_folders() -> list[Path]:
    """Where named sweeps are looked for: the current folder's and this checkout's."""
    beside = Path(__file__).resolve().parents[2] / "experiments" / "sweeps"
    return [Path("experiments") / "sweeps", beside]


def find_sweep(name_or_path: str | Path) -> Path:
    """The file of a sweep, given its name or its path."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if path.is_file():
            return path
        raise ConfigError(f"no sweep file {path}.")
    known: dict[str, Path] = {}
    for folder in reversed(sweep_folders()):
        known |= {p.stem: p for p in sorted(folder.glob("*.toml"))}
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    names = ", ".join(sorted(known)) or "none here; give a path to a .toml file"
    raise ConfigError(f"no sweep '{name_or_path}'. Known: {names}.")


def load_sweep(name_or_path: str | Path) -> Sweep:
    """Reads a sweep file; the same file always gives the same points in the same order."""
    path = find_sweep(name_or_path)
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read sweep {path}: {error}.") from None
    _known_keys(table, SWEEP_KEYS, str(path))
    seed = int(table.get("seed", 0))
    points: list[Point] = []
    for number, part in enumerate(table.get("layers", [])):
        points += sample_layers(part, random.Random(f"{seed}/layers/{number}"))
    for number, part in enumerate(table.get("models", [])):
        points += model_points(part, random.Random(f"{seed}/models/{number}"))
    if not points:
        raise ConfigError(f"{path} has no [[layers]] and no [[models]].")
    unique = tuple(dict.fromkeys(points))
    settings = {k: v for k, v in table.items() if k in Sweep.__slots__}
    return Sweep(name=path.stem, points=_mixed(unique, random.Random(seed)), **settings)


def _known_keys(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(
            f"{where}: unknown key '{unknown[0]}'. Allowed: {', '.join(sorted(known))}."
        )


def _mixed(points: tuple[Point, ...], rng: random.Random) -> tuple[Point, ...]:
    """Shuffles, then gives each series its batch sizes in rising order."""
    shuffled = list(points)
    rng.shuffle(shuffled)
    series: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        series.setdefault(point.series, []).append(point)
    rising = {k: iter(sorted(v, key=lambda p: p.batch_size)) for k, v in series.items()}
    return tuple(next(rising[point.series]) for point in shuffled)


def _workloads(part: Mapping[str, Any], where: str) -> list[Workload]:
    """Every combination of the listed values, table by table."""
    found = []
    for table in part.get("workloads", [{}]):
        lists = {k: v if isinstance(v, list) else [v] for k, v in table.items()}
        try:
            found += [
                Workload(**dict(zip(lists, values, strict=True)))
                for values in itertools.product(*lists.values())
            ]
        except TypeError:
            allowed = ", ".join(Workload.__slots__)
            raise ConfigError(f"{where}: workload keys are {allowed}.") from None
    return found


def model_points(part: Mapping[str, Any], rng: random.Random) -> list[Point]:
    """All combinations of a `[[models]]` table, or a random `sample` of them."""
    _known_keys(part, MODEL_KEYS, "[[models]]")
    if not part.get("specs"):
        raise ConfigError("[[models]] needs 'specs', a list of model specs.")
    points = [
        Point(spec, batch, image or None, seq or None, workload)
        for spec, batch, image, seq, workload in itertools.product(
            part["specs"],
            part.get("batch_sizes", [1]),
            part.get("image_sizes", [0]),
            part.get("seq_lens", [0]),
            _workloads(part, "[[models]]"),
        )
    ]
    return rng.sample(points, min(part.get("sample", len(points)), len(points)))


def _draw(bounds: list[Any], rng: random.Random) -> int:
    """A whole number, `[low, high]` uniform or `[low, high, "log"]` uniform in its logarithm."""
    low, high = int(bounds[0]), int(bounds[1])
    if len(bounds) == 3 and bounds[2] == "log":
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))
    return rng.randint(low, high)


def sample_layers(part: Mapping[str, Any], rng: random.Random) -> list[Point]:
    """Random layers of one family within its ranges and cost limits."""
    _known_keys(part, LAYER_KEYS, "[[layers]]")
    name = f"layer:{part.get('family', '')}"
    if name not in FAMILIES:
        known = ", ".join(sorted(f[6:] for f in FAMILIES if f.startswith("layer:")))
        raise ConfigError(f"no layer family '{part.get('family', '')}'. Known: {known}.")
    workloads = _workloads(part, "[[layers]]")
    limits = (float(part.get("max_gflops", math.inf)), float(part.get("max_mbytes", math.inf)))
    points: dict[Point, None] = {}
    draws = 0
    while len(points) < int(part.get("count", 1)):
        draws += 1
        if draws > MAX_DRAWS + 100 * len(points):
            raise ConfigError(f"{name}: its ranges hardly leave a point within its limits.")
        values: dict[str, Any] = {k: _draw(v, rng) for k, v in part.get("ranges", {}).items()}
        values |= {k: rng.choice(v) for k, v in part.get("choices", {}).items()}
        _make_valid(name, values, rng)
        sizes = {size: values.pop(size, None) for size in SIZES}
        if not _within(name, values, sizes, limits):
            continue
        spec = format_spec(name, values)
        parse_spec(spec)
        workload = rng.choice(workloads)
        batch = sizes["batch_size"] or 1
        points[Point(spec, batch, sizes["image_size"], sizes["seq_len"], workload)] = None
    return list(points)


def _make_valid(name: str, values: dict[str, Any], rng: random.Random) -> None:
    """Couples options that depend on each other, as PreNeT's own sampling does."""
    if name == "layer:attention":
        heads = values["heads"]
        values["dim"] = max(8, values["dim"] // heads) * heads
    if name != "layer:conv":
        return
    image = values["image_size"]
    values["kernel"] = min(values["kernel"], image)
    # PreNeT bounds channels by 10,000 over the side length, so that inputs stay alike in size
    most = max(1, 10_000 // image - 1)
    values["in"], values["out"] = min(values["in"], most), min(values["out"], most)
    if values.get("groups", 1) > 1:
        # Two thirds depthwise, the rest in groups of 8 channels
        groups = max(1, values["in"] // 8) * 8 if values["in"] >= 8 else 1
        values["in"] = values["out"] = groups
        values["groups"] = groups if rng.random() < 2 / 3 else max(1, groups // 8)


def _within(
    name: str, values: Mapping[str, Any], sizes: Mapping[str, Any], limits: tuple[float, float]
) -> bool:
    gflops, mbytes = layer_cost(name, values, sizes)
    return gflops <= limits[0] and mbytes <= limits[1]


def layer_cost(
    name: str, values: Mapping[str, Any], sizes: Mapping[str, Any]
) -> tuple[float, float]:
    """Rough forward GFLOP and megabytes (inputs, outputs, weights) of a layer; only for limits."""
    _, options = parse_spec(format_spec(name, values))
    o: dict[str, Any] = dict(options)
    rows = (sizes["batch_size"] or 1) * (sizes["seq_len"] or (1 if name == "layer:dense" else 128))
    image = sizes["image_size"] or 56
    pixels = (sizes["batch_size"] or 1) * image**2
    seq = sizes["seq_len"] or 128
    if name == "layer:dense":
        weights = o["in"] * o["out"]
        flops, values_moved = 2 * rows * weights, rows * (o["in"] + o["out"]) + weights
    elif name == "layer:conv":
        weights = o["in"] * o["out"] * o["kernel"] ** 2 // o["groups"]
        outputs = pixels // o["stride"] ** 2
        flops = 2 * outputs * weights
        values_moved = pixels * o["in"] + outputs * o["out"] + weights
    elif name == "layer:attention":
        weights = 4 * o["dim"] ** 2
        flops = 2 * rows * weights + 4 * rows * seq * o["dim"]
        values_moved = 6 * rows * o["dim"] + weights + rows * seq * o["heads"]
    elif name == "layer:recurrent":
        gates = {"lstm": 4, "gru": 3, "rnn": 1}[o["kind"]] * (1 + o["bidirectional"])
        weights = gates * o["hidden"] * (o["in"] + o["hidden"]) * o["layers"]
        flops, values_moved = 2 * rows * weights, 8 * rows * o["hidden"] * gates + weights
    else:
        width = o.get("dim", 0)
        moved = pixels * o["channels"] if "channels" in o else rows * width
        flops, values_moved = 8 * moved, 2 * moved + o.get("vocab", 0) * width
    return flops / 1e9, 4 * values_moved / 1e6
