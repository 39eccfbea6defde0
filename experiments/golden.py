"""Holds the predictions of the shipped weights still while the code is rebuilt.

    python -m experiments.golden            # compares, and names the largest difference
    python -m experiments.golden --write    # writes down what today's code predicts

`tests/golden/graphs` has the traced graphs, so that no other version of a model library changes
them; `tests/golden/predictions.json` has the predictions of every precision, mode, layout and kind
of device, of a calibrated machine, of a table, by module, with memory and intervals. New weights
are a reason to write them again; rebuilt code is none.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.shared.command import Option, Options, command
from prenet_gnn import Workload, load_predictor
from tracing import BATCH_MARKER, OpGraph, trace, zoo

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "golden"
PREDICTIONS, CALIBRATION = "predictions.json", "calibration.json"
# Kinds of network whose special cases differ: convolutions (dense, grouped, depthwise, wide),
# attention on four and five dimensions, upsampling, recurrence, embeddings, strided inputs.
MODELS: dict[str, dict[str, Any]] = {
    "timm:resnet50": {"batch_size": 32},
    "torchvision:resnet18": {"batch_size": 12},
    "torchvision:vgg11": {"batch_size": 12},
    "timm:regnety_008": {"batch_size": 64},
    "timm:efficientnet_b0": {"batch_size": 64},
    "timm:mixnet_s": {"batch_size": 32},
    "timm:convnext_nano": {"batch_size": 64},
    "timm:vit_small_patch16_224": {"batch_size": 64},
    "timm:nest_tiny": {"batch_size": 32},
    "timm:mixer_s16_224": {"batch_size": 32},
    "timm:efficientformerv2_s0": {"batch_size": 64},
    "timm:sequencer2d_s": {"batch_size": 16},
    "transformers:bert-base-uncased": {"batch_size": 8, "seq_len": 128},
    "transformers:gpt2": {"batch_size": 4, "seq_len": 256},
}
DEVICES = (
    "Tesla K80", "Tesla M60", "Tesla P100-PCIE-16GB", "NVIDIA GeForce GTX 1080 Ti",
    "Tesla V100-SXM2-16GB", "NVIDIA TITAN V", "Tesla T4", "NVIDIA GeForce RTX 2080 Ti",
    "NVIDIA A100-SXM4-40GB", "NVIDIA A40", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090",
    "NVIDIA L4", "NVIDIA H100-SXM5-80GB", "NVIDIA H200-SXM-141GB", "NVIDIA B200-SXM-192GB",
    "NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell Max-Q", "AMD Instinct MI210",
    "AMD Instinct MI300X", "AMD Radeon RX 5700", "AMD Radeon RX 6800", "AMD Radeon RX 7900 XTX",
    "Intel Core i9-10940X", "AMD EPYC 7763", "Google TPU v4",
)  # fmt: skip
PRECISIONS = ("fp32", "tf32", "amp_fp16", "amp_bf16", "fp16", "bf16", "fp64")
FRAMEWORKS = ("torch-2.9", "torch-1.7", "torch-1.12", "torch-2.1", "torch-2.4", "torch-unknown")
OPTIMIZERS = ("adamw", "sgd_momentum", "sgd", "adam", "none")
TIMED = ("", "", "", "forward+loss+backward", "h2d+zero_grad+forward+loss+backward", "forward")
# Predictions in all; one in `DETAILED` keeps its parts by module and operator.
COUNT, DETAILED = 364, 7
CALIBRATED = "AMD EPYC 7763"
FIGURES = (
    "seconds", "low_s", "high_s", "forward_s", "backward_s", "optimizer_s", "device_s", "host_s",
    "peak_memory_bytes",
)  # fmt: skip
# Digits that are written down: more than float32 has.
DIGITS = 10
TOLERANCE = 1e-6
JOBS = """model,batch_size,mode,precision,channels_last,compiled,framework,optimizer,hardware,timed
{0}:net,512,train,amp_fp16,true,false,torch-1.12,sgd_momentum,GeForce RTX 3090,forward+loss+backward
{0}:net,512,infer,fp32,,,,none,Tesla T4,forward
{0}:net,256,train,fp16,,,,adamw,NVIDIA A100-SXM4-40GB,
{0}:net,64,,,,,,,,
{0}:net,8,,,,,,,RTX 9999,
"""


def questions() -> Iterator[tuple[str, int, str, Workload]]:
    """The model, the batch size, the device and the workload of every prediction."""
    rng = random.Random(0)
    every = zip(
        itertools.cycle(MODELS), itertools.cycle(DEVICES), itertools.cycle(PRECISIONS), strict=False
    )
    for model, device, precision in itertools.islice(every, COUNT):
        mode = rng.choice(("train", "train", "infer"))
        workload = Workload(
            mode=mode,
            precision=precision,
            optimizer=rng.choice(OPTIMIZERS) if mode == "train" else "none",
            channels_last=rng.random() < 0.4,
            compiled=rng.random() < 0.3,
            cudnn_benchmark=rng.random() < 0.8,
            framework=rng.choice(FRAMEWORKS),
            timed=rng.choice(TIMED) if mode == "train" else "",
        )
        batch_size = MODELS[model]["batch_size"] * rng.choice((1, 1, 2, 3))
        yield model, batch_size, rng.choice((device, rng.choice(DEVICES))), workload


def graph_path(model: str, folder: Path = FOLDER) -> Path:
    """The file of a model's graph."""
    return folder / "graphs" / f"{model.replace(':', '-')}.json.gz"


def compute(folder: Path = FOLDER) -> dict[str, Any]:
    """What today's code predicts, as plain data."""
    predictor = load_predictor()
    graphs = {model: OpGraph.from_json(graph_path(model, folder)) for model in MODELS}
    sized: dict[tuple[str, int], OpGraph] = {}
    listed = list(questions())
    for model, batch_size, _, _ in listed:
        if (model, batch_size) not in sized:
            sized[model, batch_size] = graphs[model].with_batch_size(batch_size)
    found = predictor.predict_many(
        [sized[model, batch_size] for model, batch_size, _, _ in listed],
        [device for _, _, device, _ in listed],
        [workload for _, _, _, workload in listed],
    )
    rows = [_row(p, detailed=number % DETAILED == 0) for number, p in enumerate(found)]
    machine = load_predictor(calibration=folder / CALIBRATION)
    calibrated = [
        _row(machine.predict(sized[model, size], CALIBRATED, workload), detailed=True)
        for model, size in list(sized)[:4]
        for workload in (Workload(), Workload(mode="infer", precision="bf16", optimizer="none"))
    ]
    return {"predictions": rows, "calibrated": calibrated, "table": _table(folder)}


def _row(p: Any, *, detailed: bool) -> dict[str, Any]:
    row = {name: _number(getattr(p, name)) for name in FIGURES}
    row |= {"fits": p.fits, "hardware": p.hardware, "warnings": list(p.warnings)}
    plain = p.to_dict()
    row["memory"] = plain["memory"]
    if detailed:
        for name, parts in (("by_module", p.by_module(depth=2)), ("by_operator", p.by_operator())):
            row[name] = {key: _number(value) for key, value in parts.items()}
    return row


def _number(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def _table(folder: Path) -> list[str]:
    """The answers of `prenet predict --table`, line by line."""
    from prenet_gnn.cli import main

    with tempfile.TemporaryDirectory() as name:
        jobs, out = Path(name, "jobs.csv"), Path(name, "out.csv")
        jobs.write_text(JOBS.format(folder / "net.py"), encoding="utf-8")
        status = main(["predict", "--table", str(jobs), "-o", str(out)])
        if status:
            raise SystemExit(f"golden: the table failed with status {status}")
        lines = out.read_text(encoding="utf-8").splitlines()
    return [line.replace(f"{folder}/", "") for line in lines]


def differences(before: Any, now: Any, path: str = "") -> Iterator[tuple[float, str]]:
    """The relative difference of every figure with its place; infinity where texts differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from differences(before.get(name), now.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif _is_figure(before) and _is_figure(now):
        size = max(abs(before), abs(now))
        yield (abs(before - now) / size if size else 0.0), path
    elif isinstance(before, str) and isinstance(now, str) and "," in before:
        yield from differences(_cells(before), _cells(now), path)
    else:
        yield (0.0 if before == now else float("inf")), path


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cells(line: str) -> list[Any]:
    """The cells of a line of a table, figures as figures."""
    cells: list[Any] = []
    for cell in line.split(","):
        try:
            cells.append(float(cell))
        except ValueError:
            cells.append(cell or None)
    return cells


def compare(now: dict[str, Any], folder: Path = FOLDER) -> tuple[float, str]:
    """The largest relative difference to what was written down, and where it is.

    A part of a prediction counts relative to the whole: a module that takes a millionth of the time
    is rounded coarsely.
    """
    before = json.loads((folder / PREDICTIONS).read_text(encoding="utf-8"))
    worst = max(differences(_by_whole(before), _by_whole(now)))
    return worst


def _by_whole(data: dict[str, Any]) -> dict[str, Any]:
    """The same with the parts by module and operator given as one plus their share."""
    result = json.loads(json.dumps(data))
    for row in (*result["predictions"], *result["calibrated"]):
        for name in ("by_module", "by_operator"):
            row[name] = {k: 1.0 + v / row["seconds"] for k, v in row.get(name, {}).items()}
    return result


def write(folder: Path = FOLDER) -> None:
    """Traces what has no graph yet, calibrates, and writes the predictions down."""
    from prenet_gnn.cli import main

    for model, sizes in MODELS.items():
        path = graph_path(model, folder)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            built, args, kwargs = zoo.build(model, **{**sizes, "batch_size": BATCH_MARKER})
            trace(built, args, kwargs).to_json(path)
    if not (folder / CALIBRATION).exists():
        records = Path(__file__).parent / "records" / "cpu-models.jsonl.gz"
        with tempfile.TemporaryDirectory() as name:
            few = Path(name, "few.jsonl")
            few.write_text("".join(_renamed(records, 12)), encoding="utf-8")
            if main(["calibrate", str(few), "-o", str(folder / CALIBRATION)]):
                raise SystemExit("golden: the calibration failed")
    text = json.dumps(compute(folder), indent=0, allow_nan=False)
    (folder / PREDICTIONS).write_text(text + "\n", encoding="utf-8")


def _renamed(path: Path, count: int) -> Iterator[str]:
    """The first records as of a device of the catalogue."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in itertools.islice(file, count):
            record = json.loads(line) | {"hardware": CALIBRATED}
            record.pop("hardware_entry", None)
            yield json.dumps(record) + "\n"


@command(
    Option("--write", action="store_true", help="write down what is predicted now"),
    Option("--tolerance", type=float, default=TOLERANCE, help="largest difference"),
)
def main(options: Options) -> None:
    """Compares, or writes down."""
    if options.write:
        write()
        return
    found = compute()
    worst, where = compare(found)
    count = len(found["predictions"])
    print(f"{count} predictions: largest relative difference {worst:.2g} at {where}")
    if worst > options.tolerance:
        raise SystemExit(f"golden: more than {options.tolerance:g}")


if __name__ == "__main__":
    main()
