"""A real model with real inputs on a device, ready to run one iteration as a workload says."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prenet_gnn.errors import ConfigError
from prenet_gnn.measuring.errors import MeasureError
from prenet_gnn.measuring.loss import Loss, tensors_in
from prenet_gnn.measuring.models import Shape, build_own, is_layer, is_own
from prenet_gnn.measuring.point import Point
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    import torch

# Small enough that weights stay what they are over hundreds of iterations
LEARNING_RATE = 1e-6
MOMENTUM = 0.9
# What each optimizer of `workload.optimizers` is: module, class, options.
OPTIMIZER_CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sgd": ("torch.optim", "SGD", {}),
    "sgd_momentum": ("torch.optim", "SGD", {"momentum": MOMENTUM}),
    "adam": ("torch.optim", "Adam", {}),
    "adamw": ("torch.optim", "AdamW", {}),
    "nadam": ("torch.optim", "NAdam", {}),
    "rmsprop": ("torch.optim", "RMSprop", {}),
    "adagrad": ("torch.optim", "Adagrad", {}),
    "adafactor": ("torch.optim", "Adafactor", {}),
    "lamb": ("timm.optim", "Lamb", {}),
    "lion": ("timm.optim", "Lion", {}),
    "fused_sgd": ("torch.optim", "SGD", {"fused": True}),
    "fused_sgd_momentum": ("torch.optim", "SGD", {"fused": True, "momentum": MOMENTUM}),
    "fused_adam": ("torch.optim", "Adam", {"fused": True}),
    "fused_adamw": ("torch.optim", "AdamW", {"fused": True}),
    "adam8bit": ("bitsandbytes.optim", "Adam8bit", {}),
    "adamw8bit": ("bitsandbytes.optim", "AdamW8bit", {}),
}
CAST = {"fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
AUTOCAST = {"amp_fp16": "float16", "amp_bf16": "bfloat16"}


def _ignore(_: str) -> None:
    """Stands in where nobody asks for marks between the phases."""


def build(
    spec: str,
    batch_size: int,
    image_size: int | None = None,
    seq_len: int | None = None,
    mode: str = "train",
    device: str = "meta",
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Builds `layer:` and `net:` specs itself and asks the zoo for all others.

    Made on the meta device, the result can be traced; so every record can be traced again.
    """
    if is_own(spec):
        shape = Shape(batch_size, image_size, seq_len, device)
        model, args = build_own(spec, shape)
        model.train(mode == "train")
        return model, args, {}
    from tracing import zoo

    if device == "meta":
        return zoo.build(spec, batch_size, image_size, seq_len, mode)
    from prenet_gnn.measuring.materialize import fill_inputs, real_tensors

    with real_tensors(device):
        model, args, kwargs = zoo.build(spec, batch_size, image_size, seq_len, mode)
    return model, *fill_inputs(model, args, kwargs)


def _map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_tensors(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_map_tensors(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _map_tensors(item, change) for key, item in value.items()}
    return value


@dataclass(slots=True)
class Step:
    """One iteration of a workload; call it, or call `phases` with a mark for each phase's end."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    workload: Workload
    device_type: str
    single_layer: bool
    optimizer: torch.optim.Optimizer | None = None
    runnable: Callable[..., Any] | None = None
    loss: Loss = field(default_factory=Loss)
    gradients: list[torch.Tensor] = field(default_factory=list)

    def __call__(self) -> None:
        """Runs a whole iteration."""
        self.phases(_ignore)

    @property
    def timed(self) -> str:
        """Names of the phases, joined by `+`."""
        if self.workload.mode == "infer":
            return "forward"
        names = ["zero_grad", "forward", "loss", "backward", "optimizer"]
        if self.single_layer:
            names.remove("loss")
        if self.optimizer is None:
            names.remove("optimizer")
        return "+".join(names)

    def phases(self, mark: Callable[[str], None]) -> None:
        """Runs a whole iteration and calls `mark` with the name of each phase at its end."""
        import torch

        if self.workload.mode == "infer":
            with torch.inference_mode():
                self.forward()
            mark("forward")
            return
        self.zero_grad()
        mark("zero_grad")
        output = self.forward()
        mark("forward")
        if self.single_layer:
            self._backward_of_layer(output)
        else:
            with self.autocast():
                loss = self.loss(output)
            mark("loss")
            loss.backward()  # type: ignore[no-untyped-call]
        del output
        mark("backward")
        if self.optimizer is not None:
            self.optimizer.step()
            mark("optimizer")

    def forward(self) -> Any:
        """The model's output."""
        with self.autocast():
            return (self.runnable or self.model)(*self.args, **self.kwargs)

    def zero_grad(self) -> None:
        """Drops gradients of weights and inputs, as optimizers do by default."""
        self.model.zero_grad(set_to_none=True)
        for tensor in tensors_in((self.args, self.kwargs)):
            tensor.grad = None

    def autocast(self) -> Any:
        """Autocast of the workload's precision, or nothing."""
        import torch

        name = AUTOCAST.get(self.workload.precision)
        if name is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device_type, dtype=getattr(torch, name))

    def _backward_of_layer(self, output: Any) -> None:
        """A gradient comes in from above, as inside a network; there is no loss to time."""
        import torch

        outputs = [t for t in tensors_in(output) if t.requires_grad]
        if not outputs:
            raise MeasureError("this layer has nothing to train; measure it with mode infer.")
        if not self.gradients:
            self.gradients = [torch.randn_like(t) for t in outputs]
        torch.autograd.backward(outputs, self.gradients)


def _check(workload: Workload, device: torch.device) -> None:
    if workload.precision == "tf32" and device.type != "cuda":
        raise ConfigError("precision tf32 needs a CUDA device; use fp32 here.")
    if workload.precision == "fp64" and device.type == "mps":
        raise ConfigError("precision fp64 is not supported on mps; use fp32 here.")


def _optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer | None:

    params = [p for p in model.parameters() if p.requires_grad]
    if name == "none" or not params:
        return None
    module, kind, options = OPTIMIZER_CLASSES[name]
    try:
        made = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError) as error:
        package = module.partition(".")[0]
        raise MeasureError(f"optimizer {name} is {package}'s {kind}: install {package}.") from error
    stepper: torch.optim.Optimizer = made(params, lr=LEARNING_RATE, **options)
    return stepper


def _placed(value: Any, workload: Workload, device: torch.device) -> Any:
    import torch

    dtype = CAST.get(workload.precision)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(device)
        if dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, dtype))
        if workload.channels_last and tensor.dim() == 4 and tensor.is_floating_point():
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    return _map_tensors(value, change)


def make_step(point: Point, device: torch.device) -> Step:
    """Builds model, inputs and optimizer on the device in the workload's precision and layout."""
    import torch

    workload, spec = point.workload, point.model
    _check(workload, device)
    torch.manual_seed(0)
    sizes = (point.batch_size, point.image_size, point.seq_len)
    model, args, kwargs = build(spec, *sizes, workload.mode, str(device))
    model = model.to(device)
    if workload.precision in CAST:
        model = model.to(getattr(torch, CAST[workload.precision]))
    if workload.channels_last:
        model = model.to(memory_format=torch.channels_last)
    args, kwargs = _placed(args, workload, device), _placed(kwargs, workload, device)
    train = workload.mode == "train"
    if train and is_layer(spec):
        for tensor in tensors_in((args, kwargs)):
            tensor.requires_grad_(tensor.is_floating_point())
    return Step(
        model=model,
        args=args,
        kwargs=kwargs,
        workload=workload,
        device_type=device.type,
        single_layer=is_layer(spec),
        optimizer=_optimizer(workload.optimizer, model) if train else None,
        runnable=torch.compile(model) if workload.compiled else None,
    )


@contextmanager
def torch_settings(workload: Workload, threads: int | None) -> Iterator[None]:
    """Sets thread count, TF32 and kernel search for a while."""
    import torch

    # One name for both products and convolutions since torch 2.9; the older flags warn
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = (torch.get_num_threads(), torch.backends.cudnn.benchmark)
    rates = (matmul.fp32_precision, conv.fp32_precision)
    rate = "tf32" if workload.precision == "tf32" else "ieee"
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = workload.cudnn_benchmark
        matmul.fp32_precision = conv.fp32_precision = rate
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cudnn.benchmark = before[1]
        matmul.fp32_precision, conv.fp32_precision = rates
