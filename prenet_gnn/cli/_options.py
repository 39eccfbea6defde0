"""Options that several commands share, as dataclasses that a command takes whole."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.workload.optimizers import OPTIMIZERS
from prenet_gnn.workload.workload import DEFAULT_FRAMEWORK, MODES, PRECISIONS, Workload

if TYPE_CHECKING:
    from prenet_gnn.measuring import Effort, MeasuredRecord, Point
    from prenet_gnn.predictor.interface import TimePredictor

DEFAULT_BATCH_SIZE = 32

MODEL_HELP = (
    "timm:NAME, torchvision:NAME, transformers:NAME_OR_CONFIG.json, file.py:factory, "
    "or a graph.json written by `prenet trace`."
)
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result to FILE.")
]
Devices = Annotated[
    list[str] | None,
    typer.Option("--devices", metavar="NAME", help="Only this device; repeatable. All if none."),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=USD_PER_HOUR", help="A price of your own; repeatable."),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="HTML", help="Write charts and all inputs to one HTML file."),
]
DevicesPerNode = Annotated[
    int,
    typer.Option(
        "--devices-per-node", metavar="N", help="Coarse outlook: N devices, data parallel."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; repeatable."),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", envvar="PRENET_DATA", help="Folder with the measured data."),
]


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeOptions:
    """Sizes that the traced graph carries."""

    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", "-b", help=f"Samples per iteration; {DEFAULT_BATCH_SIZE} if not given."
        ),
    ] = None
    image_size: Annotated[
        int | None, typer.Option(help="Image height and width in pixels; the model's own if not.")
    ] = None
    seq_len: Annotated[
        int | None, typer.Option(help="Sequence length in tokens; the model's own if not given.")
    ] = None
    attention: Annotated[
        str, typer.Option(help="sdpa (fused) or eager; empty = what the framework version runs.")
    ] = ""

    def checked(self) -> "ShapeOptions":
        """Refuses sizes that no run can have."""
        from prenet_gnn.predictor.jobs import check_size

        for name in ("batch_size", "image_size", "seq_len"):
            value = getattr(self, name)
            if value is not None:
                check_size(name, value)
        return self

    @property
    def batch(self) -> int:
        """The batch size that was asked for, or the usual one."""
        return DEFAULT_BATCH_SIZE if self.batch_size is None else self.batch_size


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """How the model is run: the fields of `Workload`."""

    mode: Annotated[str, typer.Option(help=" | ".join(MODES))] = "train"
    precision: Annotated[str, typer.Option(help=" | ".join(PRECISIONS))] = "fp32"
    optimizer: Annotated[
        str, typer.Option(help=f"{' | '.join(OPTIMIZERS)}; adamw in training if not given.")
    ] = ""
    channels_last: Annotated[bool, typer.Option("--channels-last", help="NHWC layout.")] = False
    compiled: Annotated[bool, typer.Option("--compile", help="Through torch.compile.")] = False
    cudnn_benchmark: Annotated[bool, typer.Option(help="cuDNN's search for fast kernels.")] = True
    framework: Annotated[str, typer.Option(help="PyTorch version.")] = DEFAULT_FRAMEWORK
    timed: Annotated[
        str, typer.Option(help="Phases to sum, as forward+backward; the whole iteration if not.")
    ] = ""

    def workload(self) -> Workload:
        """Gives the checked workload."""
        values = dataclasses.asdict(self)
        values["optimizer"] = self.optimizer or ("adamw" if self.mode == "train" else "none")
        return Workload(**values)

    def to_measure(self, model: str, shape: ShapeOptions) -> "Point":
        """Gives the point of a real run, which leaves less to choose."""
        from prenet_gnn.errors import ConfigError
        from prenet_gnn.measuring import Point

        shape.checked()
        for name, value in (("attention", shape.attention), ("timed", self.timed)):
            if value:
                raise ConfigError(
                    f"--{name} cannot be chosen in a real run: the installed libraries decide; "
                    "leave it out."
                )
        return Point(model, shape.batch, shape.image_size, shape.seq_len, self.workload())


@dataclasses.dataclass(frozen=True, slots=True)
class PredictorOptions:
    """Which weights answer."""

    weights: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Trained weights; the shipped ones if not given."),
    ] = None
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Corrections written by `prenet calibrate`."),
    ] = None

    def load(self) -> "TimePredictor":
        """Loads the weights and, where asked for, the calibration on top."""
        from prenet_gnn.predictor.loading import load_predictor

        return load_predictor(self.weights, self.calibration)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineOptions:
    """Where a measurement runs, and how many samples it takes."""

    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1 or mps; an accelerator if there is one.")
    ] = None
    iterations: Annotated[int | None, typer.Option(min=1, help="Samples to take.")] = None
    # More threads than any machine has cores end the process.
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads.")] = None

    def effort(self, *, profile: bool) -> "Effort":
        """Gives what a measurement is told; `profile` adds its operators."""
        from prenet_gnn.measuring import Effort

        return Effort(iterations=self.iterations, threads=self.threads, profile=profile)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordOptions:
    """Where a measured record goes."""

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="JSONL", help="Records file; lines are added."),
    ] = None
    json: Json = False

    def check(self) -> None:
        """Refuses a file that nothing can be added to, before anything is measured."""
        from prenet_gnn.measuring import check_target

        if self.output is not None:
            check_target(self.output)

    def add(self, record: "MeasuredRecord") -> None:
        """Adds a record to the file, where there is one."""
        from prenet_gnn.measuring import append_record

        if self.output is not None:
            append_record(self.output, record)


def parse_prices(texts: list[str] | None) -> dict[str, float]:
    """Reads prices written as NAME=USD_PER_HOUR."""
    from prenet_gnn.errors import ConfigError

    prices: dict[str, float] = {}
    for text in texts or ():
        name, equals, number = text.rpartition("=")
        name = name.strip()
        try:
            price = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ConfigError(
                f"price '{text}' is not understood. Write NAME=USD_PER_HOUR, as 'Tesla T4=0.35'."
            )
        if name in prices:
            raise ConfigError(f"the price of {name} is given twice.")
        prices[name] = price
    return prices
