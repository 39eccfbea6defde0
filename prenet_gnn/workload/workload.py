"""How a graph is run: mode, number format, optimizer, layout and framework."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from prenet_gnn.errors import ConfigError
from prenet_gnn.workload.frameworks import version_in
from prenet_gnn.workload.optimizers import OPTIMIZERS

MODES = ("train", "infer")
PRECISIONS = ("fp32", "tf32", "amp_fp16", "amp_bf16", "fp16", "bf16", "fp64")
# What a time covers; the empty string is the whole iteration.
PHASES = (
    "data_loading",
    "h2d",
    "zero_grad",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "postprocess",
)
# What only training does.
TRAINING_PHASES = ("zero_grad", "loss", "backward", "optimizer")
DEFAULT_FRAMEWORK = "torch-2.9.1"


def _choose(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"{field} '{value}' is not known.{hint} Allowed: {', '.join(allowed)}.")


@dataclass(frozen=True, slots=True)
class Workload:
    """One way to run a graph; batch, image and sequence sizes live in the graph.

    Attributes:
        mode: `train` (one full iteration) or `infer` (one forward pass).
        precision: Number format; `amp_*` is autocast over float32 weights, `fp16`/`bf16`/`fp64`
            cast the whole model, `tf32` is float32 with TensorFloat-32 matrix products.
        optimizer: What updates the weights, of `optimizers.OPTIMIZERS`; `none` leaves the step out.
        channels_last: NHWC memory layout.
        compiled: Run through `torch.compile` (inductor).
        cudnn_benchmark: cuDNN searches for its fastest convolution kernels.
        framework: Framework version as `torch-X.Y[.Z]` or `X.Y[.Z]`; empty takes the default for
            the time and a wider interval, `torch-unknown` stands for a version of the past that
            nobody noted.
        timed: Phases joined by `+` that a prediction sums; empty means the whole iteration.
    """

    mode: str = "train"
    precision: str = "fp32"
    optimizer: str = "adamw"
    channels_last: bool = False
    compiled: bool = False
    cudnn_benchmark: bool = True
    framework: str = DEFAULT_FRAMEWORK
    timed: str = ""

    def __post_init__(self) -> None:
        """Checks every field against the values that are allowed."""
        _choose("mode", self.mode, MODES)
        _choose("precision", self.precision, PRECISIONS)
        _choose("optimizer", self.optimizer, tuple(OPTIMIZERS))
        for name in ("channels_last", "compiled", "cudnn_benchmark"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {getattr(self, name)!r}.")
        if not isinstance(self.framework, str) or not isinstance(self.timed, str):
            raise ConfigError("framework and timed must be text.")
        self._check_framework()
        self._check_phases()

    def _check_framework(self) -> None:
        """A bare `2.9.1` is PyTorch's; what is no version of it would be ignored in silence."""
        if re.match(r"\d+\.\d+", self.framework):
            object.__setattr__(self, "framework", f"torch-{self.framework}")
        unstated = not self.framework or self.framework.startswith("torch-unknown")
        if not unstated and self.framework_version is None:
            raise ConfigError(
                f"framework '{self.framework}' is no version of PyTorch: write one as "
                f"{DEFAULT_FRAMEWORK}, or torch-unknown."
            )

    def _check_phases(self) -> None:
        for phase in self.phases:
            _choose("timed phase", phase, PHASES)
        twice = {phase for phase in self.phases if self.phases.count(phase) > 1}
        if twice:
            raise ConfigError(f"timed names the phase {', '.join(sorted(twice))} more than once.")
        never = [phase for phase in self.phases if phase in TRAINING_PHASES]
        if self.mode == "infer" and never:
            raise ConfigError(
                f"timed names {', '.join(never)}, which inference does not have: give mode train."
            )

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases a prediction sums, in order."""
        if self.timed:
            return tuple(self.timed.split("+"))
        if self.mode == "infer":
            return ("forward",)
        whole = ("zero_grad", "forward", "loss", "backward", "optimizer")
        return whole if self.optimizer != "none" else whole[:-1]

    @property
    def framework_version(self) -> tuple[int, int] | None:
        """Major and minor version of PyTorch; None for a name without one, `torch-unknown` say."""
        return version_in(self.framework or DEFAULT_FRAMEWORK)
