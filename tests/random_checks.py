"""What real runs on the CPU say of a random model: FLOPs, saved bytes, state."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import torch
from random_models import Case, results, total
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tracing import OpGraph, Source

# One product of complex numbers is four of real ones, which the counter does not know.
COMPLEX_PRODUCTS = 4


def _convolution_backward(
    grad: Sequence[int],
    x: Sequence[int],
    weight: Sequence[int],
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
    out_shape: Any = None,
) -> int:
    """Gradients of input and weight cost what the forward pass costs, groups or not.

    PyTorch's own formula does not divide the weight's gradient by the groups.
    """
    positions = prod((x if transposed else grad)[2:])
    once = 2 * x[0] * positions * prod(weight)
    return once * (int(mask[0]) + int(mask[1]))


_FORMULAS = {torch.ops.aten.convolution_backward: _convolution_backward}


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Without oneDNN, which runs an LSTM as one operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings of other devices
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def flops_of_a_run(case: Case) -> tuple[int, int]:
    """Forward and backward FLOPs that the counter sees.

    Fused kernels that the counter has no formula for run as their parts: attention as products,
    recurrent layers as linear ones.
    """
    factor = COMPLEX_PRODUCTS if case.dtype == "complex64" else 1
    with _plain_kernels(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False, custom_mapping=_FORMULAS) as forward:
            found = results(case)
        with FlopCounterMode(display=False, custom_mapping=_FORMULAS) as backward:
            if found:
                total(found).backward()
    return factor * forward.get_total_flops(), factor * backward.get_total_flops()


def state(case: Case) -> list[Any]:
    """Everything of a model and of the random numbers that tracing could change."""
    tensors = {**case.model.state_dict(keep_vars=True), **case.kwargs}
    tensors |= {f"input {i}": x for i, x in enumerate(case.args)}
    found: list[Any] = [(name, t, t.detach().clone(), t.requires_grad, t.grad, t._version)
                        for name, t in tensors.items()]  # fmt: skip
    found += [(name, m.training) for name, m in case.model.named_modules()]
    return [*found, torch.random.get_rng_state(), random.getstate()]


def same_state(before: list[Any], after: list[Any]) -> bool:
    """Whether nothing has changed, not even which tensors the model holds."""

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, torch.Tensor):
            return a is b or (a.dtype == b.dtype and torch.equal(a, b))
        if isinstance(a, tuple) and len(a) == 6 and isinstance(a[1], torch.Tensor):
            return a[1] is b[1] and all(same(x, y) for x, y in zip(a, b, strict=True))
        return bool(a == b)

    return len(before) == len(after) and all(same(a, b) for a, b in zip(before, after, strict=True))


def reordered(graph: OpGraph, seed: int) -> OpGraph:
    """The same graph with its calls in another order that its edges allow."""
    rng = random.Random(seed)
    waiting = {n.index: {s.node for s in n.sources if s.kind == "node"} for n in graph.nodes}
    order: list[int] = []
    while waiting:
        ready = [index for index, needs in waiting.items() if not needs - set(order)]
        order.append(rng.choice(ready))
        del waiting[order[-1]]
    place = {index: position for position, index in enumerate(order)}

    def moved(source: Source) -> Source:
        return replace(source, node=place[source.node]) if source.kind == "node" else source

    nodes = tuple(
        replace(graph.nodes[index], index=position,
                sources=tuple(moved(s) for s in graph.nodes[index].sources))
        for position, index in enumerate(order)
    )  # fmt: skip
    return graph.replace(
        nodes=nodes, outputs=tuple(moved(s) for s in graph.outputs), probe=None, retrace=None
    )
