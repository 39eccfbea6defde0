"""Other FLOP counters on the same models: right or wrong, and how long they take.

The forward pass at batch 1 in evaluation mode on one CPU thread. A multiply-accumulate counts as
two FLOPs; tools that count multiply-accumulates are doubled. Times are those of the processor.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from time import process_time

import torch
from torch import nn

from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study
from experiments.tracing_tables.flops import seen_by_counter
from experiments.tracing_tables.kinds.layers import Fn
from tracing import trace

# Tools count biases and norms differently; a count this close is right.
TOLERANCE = 0.05
Case = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]


def _vision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, weights=None)  # type: ignore[no-any-return]

    return build


def _image() -> torch.Tensor:
    return torch.randn(1, 3, 224, 224)


def _attention() -> nn.Module:
    layer = nn.MultiheadAttention(100, 1, batch_first=True)
    return Fn(lambda self, x: self.layer(x, x, x, need_weights=False)[0], layer=layer)


def _twice() -> nn.Module:
    return Fn(lambda self, x: self.layer(self.layer(x)), layer=nn.Linear(1000, 1000))


def _products() -> nn.Module:
    return Fn(lambda _, x: (x @ x.transpose(1, 2)).softmax(-1) @ x)


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


# The model, its input, and the right FLOPs (0: what torch counts on `meta`, attention included).
MODELS: dict[str, Case] = {
    "ResNet-50": (_vision("resnet50"), _image, 0),
    "MobileNetV3-L": (_vision("mobilenet_v3_large"), _image, 0),
    "ConvNeXt-T": (_vision("convnext_tiny"), _image, 0),
    "ViT-B/16": (_vision("vit_b_16"), _image, 0),
    "Swin-T": (_vision("swin_t"), _image, 0),
    "LSTM(12, 128), 250 steps": (
        lambda: nn.LSTM(12, 128, batch_first=True),
        lambda: torch.randn(1, 250, 12),
        35_840_000,
    ),
    "MultiheadAttention(100), 1000 rows": (
        _attention,
        lambda: torch.randn(1, 1000, 100),
        480_000_000,
    ),
    "encoder layer": (_encoder, lambda: torch.randn(1, 50, 64), 3_916_800),
    "products": (_products, lambda: torch.randn(1, 64, 128), 2_097_152),
    "one layer twice": (_twice, lambda: torch.randn(1, 20, 1000), 80_000_000),
    "compiled layer": (
        lambda: torch.compile(nn.Linear(1000, 1000)),  # type: ignore[return-value]
        lambda: torch.randn(1, 1000),
        2_000_000,
    ),
}


def _ours(backend: str) -> Callable[[nn.Module, torch.Tensor], int]:
    return lambda model, x: trace(model, (x,), backend=backend).total_flops


def _counter(model: nn.Module, x: torch.Tensor) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    return int(counter.get_total_flops())


def _fvcore(model: nn.Module, x: torch.Tensor) -> int:
    from fvcore.nn import FlopCountAnalysis

    return 2 * int(FlopCountAnalysis(model, x).total())


def _ptflops(backend: str) -> Callable[[nn.Module, torch.Tensor], int]:
    def count(model: nn.Module, x: torch.Tensor) -> int:
        from ptflops import get_model_complexity_info

        found, _ = get_model_complexity_info(
            model,
            tuple(x.shape[1:]),
            as_strings=False,
            print_per_layer_stat=False,
            verbose=False,
            backend=backend,
        )
        return 2 * int(found)

    return count


def _torchinfo(model: nn.Module, x: torch.Tensor) -> int:
    import torchinfo

    return 2 * int(torchinfo.summary(model, input_data=x, verbose=0).total_mult_adds)


def _thop(model: nn.Module, x: torch.Tensor) -> int:
    import thop

    return 2 * int(thop.profile(model, inputs=(x,), verbose=False)[0])


TOOLS: dict[str, Callable[[nn.Module, torch.Tensor], int]] = {
    "prenet": _ours("export"),
    "prenet, recorded": _ours("record"),
    "FlopCounterMode": _counter,
    "fvcore": _fvcore,
    "ptflops": _ptflops("pytorch"),
    "ptflops, aten": _ptflops("aten"),
    "torchinfo": _torchinfo,
    "ultralytics-thop": _thop,
}


def _right(name: str) -> int:
    build, make, wanted = MODELS[name]
    if wanted:
        return wanted
    return seen_by_counter(build().eval().to("meta"), (make().to("meta"),), {})[0]


def row(key: str) -> Row:
    """One tool on one model; the first call only warms up."""
    name, _, tool = key.partition(" | ")
    build, make, _ = MODELS[name]
    logging.disable(logging.WARNING)
    found, seconds, failure = 0, 0.0, ""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            for _ in range(2):
                model, x = build().eval(), make()
                start = process_time()
                found = TOOLS[tool](model, x)
                seconds = process_time() - start
    except Exception as error:
        failure = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    finally:
        logging.disable(logging.NOTSET)
    right = _right(name)
    off = found / right - 1
    verdict = f"off by {off:+.0%}" if abs(off) > TOLERANCE else "right"
    return {
        "verdict": f"fails ({failure})" if failure else verdict,
        "flops": found,
        "right_flops": right,
        "milliseconds": round(1000 * seconds, 1),
    }


def keys() -> list[str]:
    """Every tool on every model."""
    return [f"{name} | {tool}" for name in MODELS for tool in TOOLS]


def summary(table: list[Row]) -> list[str]:
    """How often each tool is right."""
    lines = []
    for tool in TOOLS:
        rows = [row for row in table if row["model"].endswith(f" | {tool}") and not row["error"]]
        right = sum(row["verdict"] == "right" for row in rows)
        lines.append(f"{tool}: right on {right} of {len(rows)}")
    return lines


STUDY = Study(
    "peers", keys, row, summary, packages=("fvcore", "ptflops", "torchinfo", "ultralytics-thop")
)
