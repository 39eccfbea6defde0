"""Bytes that one call moves between memory and chip, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracing.costs.saved import saved_by
from tracing.costs.vocab import LOOKUPS, PRODUCTS
from tracing.graph.specs import OpNode, TensorSpec


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written by the forward and the backward of one call."""

    forward_read: int = 0
    forward_write: int = 0
    backward_read: int = 0
    backward_write: int = 0

    @property
    def forward(self) -> int:
        """Both directions of the forward."""
        return self.forward_read + self.forward_write

    @property
    def backward(self) -> int:
        """Both directions of the backward."""
        return self.backward_read + self.backward_write


def traffic(
    node: OpNode,
    item_in: Sequence[int] | None = None,
    item_out: Sequence[int] | None = None,
    *,
    by_kernel: bool = False,
) -> Traffic:
    """Bytes that a call moves; a view that copies nothing moves nothing.

    Args:
        node: The call.
        item_in: Bytes per element of every input; None takes the inputs' own.
        item_out: Bytes per element of every output; None takes the outputs' own.
        by_kernel: False counts what must move at least. True counts what kernels move that know
            nothing of each other: a tensor that is passed twice is read twice, and the gradient of
            a product's output is read for the gradient of each operand. What fused attention keeps
            for itself is left out then, as it stays small.
    """
    if node.is_view:
        return Traffic()
    inputs, outputs = _sizes(node.input_specs, item_in), _sizes(node.output_specs, item_out)
    read, written = _forward(node, inputs, sum(outputs), by_kernel)
    if not node.differentiable:
        return Traffic(read, written)
    gradient = sum(
        size for spec, size in zip(node.output_specs, outputs, strict=True) if spec.is_floating
    )
    if by_kernel and node.kind in PRODUCTS and sum(node.needs_grad[:2]) > 1:
        gradient *= 2
    saved = saved_by(node)
    kept = 0 if by_kernel and node.kind == "attention" else saved.extra_bytes
    kept += sum(inputs[i] for i in saved.inputs if i < len(inputs))
    kept += sum(outputs[i] for i in saved.outputs if i < len(outputs))
    needed = sum(size for size, need in zip(inputs, node.needs_grad, strict=True) if need)
    return Traffic(read, written, gradient + kept, needed)


def _sizes(specs: Sequence[TensorSpec], items: Sequence[int] | None) -> list[int]:
    if items is None:
        return [spec.bytes for spec in specs]
    return [spec.numel * item for spec, item in zip(specs, items, strict=True)]


def _forward(node: OpNode, inputs: list[int], written: int, by_kernel: bool) -> tuple[int, int]:
    """Bytes that the forward reads and writes."""
    if node.kind == "create":
        return 0, written
    if node.kind == "view":
        return written, written
    if node.kind in LOOKUPS and len(inputs) > 1 and not node.inplace:
        table = max(inputs)
        return sum(inputs) - table + min(written, table), written
    if by_kernel:
        return sum(inputs), written
    seen: set[object] = set()
    read = 0
    for source, size in zip(node.sources, inputs, strict=True):
        key = (source.kind, source.node, source.slot, source.name)
        if source.kind == "const" or key not in seen:
            read += size
            seen.add(key)
    return read, written
