"""How tensors lie in memory while a model runs, in the plain and in the channels-last layout.

Convolutions, pointwise operators and pooling hand a channels-last tensor on as such; group
normalisation, matrix products and most others return plain tensors. Where the two meet, a kernel
copies its input first or reads it against the grain. See PyTorch's "Channels Last Memory Format"
tutorial and `TensorIterator`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tracing.costs.strides import VIEWS, apply_view
from tracing.costs.vocab import CONVOLUTIONS
from tracing.graph.specs import OpNode, Source, TensorSpec

KEEPS = frozenset({"activation", "unary", "binary", "dropout", "batch_norm", "pool", "interpolate"})
# These kernels want a plain tensor and copy any other.
PLAIN_ONLY = frozenset({"group_norm", "layer_norm", "rms_norm", "softmax", "linear", "rnn"})
KEEPING_COPIES = frozenset({"clone", "_to_copy", "to", "pad", "constant_pad_nd", "float", "half"})
# Padding by values of the image: CUDA's kernels copy their input into a plain tensor and return one
# (`ReflectionPad.cu`, `ReplicationPadding.cu`).
PADS_PLAIN = ("reflection_pad", "replication_pad")


@dataclass(frozen=True, slots=True)
class MemoryFormat:
    """How the input of a call lies in memory.

    Attributes:
        last: The channels of its first tensor lie next to each other.
        converts: It copies an input first, or its inputs disagree.
        strided: It asks for a contiguous first input and gets another.
    """

    last: bool = False
    converts: bool = False
    strided: bool = False


def memory_formats(nodes: Sequence[OpNode], channels_last: bool) -> list[MemoryFormat]:
    """The memory format of every call's inputs.

    Args:
        nodes: Calls of a graph, in order.
        channels_last: Whether weights and images come in the channels-last layout.
    """
    walk = _Walk(channels_last)
    return [walk.visit(node) for node in nodes]


InBothLayouts = tuple[MemoryFormat, MemoryFormat]
"""Of one call's input: in a network that runs in the plain and in the channels-last layout."""


def in_both_layouts(nodes: Sequence[OpNode]) -> list[InBothLayouts]:
    """Memory formats of every call's input in the plain and in the channels-last layout."""
    return list(zip(memory_formats(nodes, False), memory_formats(nodes, True), strict=True))


class _Walk:
    """Follows the strides of all tensors through a graph, on meta tensors."""

    def __init__(self, channels_last: bool) -> None:
        self.last = channels_last
        self.tensors: dict[tuple[int, int], torch.Tensor] = {}
        self.copied: set[int] = set()  # views that had to copy

    def visit(self, node: OpNode) -> MemoryFormat:
        """Notes what a call returns and says how its inputs lie."""
        inputs = [
            self._input(source, spec)
            for source, spec in zip(node.sources, node.input_specs, strict=False)
        ]
        copied = any(s.kind == "node" and s.node in self.copied for s in node.sources)
        data = [t for t, s in zip(inputs, node.sources, strict=False) if s.kind != "param"]
        first = data[0] if data else None
        last = first is not None and _is_last(first)
        strided = node.kind in PLAIN_ONLY and bool(data) and not data[0].is_contiguous()
        converts = copied or strided or self._converts(node, data)
        for slot, spec in enumerate(node.output_specs):
            self.tensors[(node.index, slot)] = self._output(node, slot, spec, data)
        return MemoryFormat(last, converts, strided)

    def _input(self, source: Source, spec: TensorSpec) -> torch.Tensor:
        if source.kind == "node":
            known = self.tensors.get((source.node, source.slot))
            if known is not None:
                return known
        is_image = source.kind == "input" and len(spec.shape) == 4
        return _empty(spec.shape, self.last and is_image)

    def _converts(self, node: OpNode, data: list[torch.Tensor]) -> bool:
        if node.kind in CONVOLUTIONS:
            # the channels-last layout of weight or data decides, and the other is converted
            if not data or not _is_image(data[0]):
                return False
            if _is_last(data[0]):
                return not _is_dense_last(data[0])
            return self._has_last_weight(node)
        if _pads_plain(node):
            return bool(data) and not data[0].is_contiguous()
        if node.kind in ("binary", "copy"):
            full = [t for t in data if t.shape == data[0].shape]
            return len({_order(t) for t in full}) > 1
        return False

    def _has_last_weight(self, node: OpNode) -> bool:
        """Whether a convolution's weight is channels-last: parameters are, made ones may be not."""
        if len(node.sources) < 2 or node.sources[1].kind != "node":
            return self.last
        source = node.sources[1]
        made = self.tensors.get((source.node, source.slot))
        return made is not None and _is_last(made)

    def _output(
        self, node: OpNode, slot: int, spec: TensorSpec, data: list[torch.Tensor]
    ) -> torch.Tensor:
        if node.kind == "view" and node.op in VIEWS and data:
            if node.attrs.get("copies"):
                return _empty(spec.shape, False)
            result = apply_view(node, slot, data[0])
            if (
                result.is_contiguous()
                and not data[0].is_contiguous()
                and _needs_copy(node, data[0])
            ):
                self.copied.add(node.index)
            return result
        if node.kind in CONVOLUTIONS:
            last = self._has_last_weight(node) or (bool(data) and _is_last(data[0]))
            return _empty(spec.shape, last)
        same = next((t for t in data if tuple(t.shape) == spec.shape), None)
        keeps = node.kind in KEEPS or (node.kind == "copy" and node.op in KEEPING_COPIES)
        keeps = keeps and not _pads_plain(node)
        if keeps and same is not None:
            # nothing writes into these tensors, so a dense one stands for the next like it
            dense = same.is_contiguous() or _is_dense_last(same)
            return same if dense else torch.empty_like(same)
        images = [t for t in data if _is_image(t)]
        all_last = bool(images) and all(_is_last(t) for t in images)
        if all_last and (keeps or node.op in ("cat", "stack", "mean", "sum")):
            return _empty(spec.shape, True)
        return _empty(spec.shape, False)


def _pads_plain(node: OpNode) -> bool:
    """Whether this is a padding whose kernel knows plain tensors only."""
    if node.op == "pad":
        return bool(node.attrs.get("mode", "constant") != "constant")
    return node.op.startswith(PADS_PLAIN)


def _is_image(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.shape[1] > 1 and tensor.shape[2] * tensor.shape[3] > 1


def _is_last(tensor: torch.Tensor) -> bool:
    """Whether channels vary fastest, then columns, rows and samples, with or without gaps.

    Kernels that have a channels-last version ask for no more (`is_channels_last_strides_2d` in
    c10/core/MemoryFormat.h).
    """
    if not _is_image(tensor) or not tensor.stride(1):
        return False
    least = 0
    for dim in (1, 3, 2, 0):
        stride = tensor.stride(dim)
        if stride < least or (dim == 0 and least == tensor.stride(1)):
            return False
        least = stride * tensor.shape[dim]
    return True


def _is_dense_last(tensor: torch.Tensor) -> bool:
    return _is_image(tensor) and tensor.is_contiguous(memory_format=torch.channels_last)


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of the dimensions that have more than one position."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride for size, stride in sizes if size > 1)


def _needs_copy(node: OpNode, tensor: torch.Tensor) -> bool:
    """Whether a reshape of strided data had to copy it."""
    if node.op not in ("view", "reshape", "flatten", "unflatten"):
        return False
    try:
        tensor.view(node.output_specs[0].shape)
    except RuntimeError:
        return True
    return False


@functools.lru_cache(maxsize=4096)
def _empty(shape: tuple[int, ...], last: bool) -> torch.Tensor:
    if last and len(shape) == 4:
        return torch.empty(shape, device="meta", memory_format=torch.channels_last)
    return torch.empty(shape, device="meta")
