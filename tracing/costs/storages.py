"""Which tensors share memory, and which of them are kept for the backward pass.

Tensors are told apart by storage: views and in-place calls share the memory of what they look at.
Parameters and buffers are left out; they exist before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tracing.costs.saved import dropout_active, saved_by
from tracing.costs.strides import operand_copy
from tracing.graph.data import GraphData
from tracing.graph.specs import OpNode, Source, TensorSpec

# Identity of a storage: the call and output that allocated it, or the name of an input.
Key = tuple[str, int, int, str]
# Bytes of one tensor under a precision, from where it comes and what it is.
Sizes = Callable[[Source, TensorSpec], int]
# Bytes of the converted copy that a call reads instead of the input at a position; 0 for none.
Casts = Callable[[OpNode, int], int]
MODEL_STATE = ("param", "buffer")


def stored_bytes(_: Source, spec: TensorSpec) -> int:
    """Bytes of a tensor as it was traced."""
    return spec.bytes


def shares_memory(node: OpNode) -> bool:
    """Whether the outputs of a call are its first input's memory."""
    if node.kind == "view":
        return node.is_view
    if node.kind == "dropout":
        return not dropout_active(node) or node.inplace
    return node.inplace


def _fused(node: OpNode) -> bool:
    """Whether an attention kernel reads its operands as they lie."""
    return node.kind == "attention" and node.attrs.get("backend") != "math"


class Storages:
    """The storage behind every tensor of a graph."""

    def __init__(self, graph: GraphData, sizes: Sizes = stored_bytes) -> None:
        """Follows views and in-place calls through the whole graph."""
        self._sizes = sizes
        self._keys: list[tuple[Key, ...]] = []
        self.bytes: dict[Key, int] = {}
        for node in graph.nodes:
            self._keys.append(self._outputs(node))

    def _outputs(self, node: OpNode) -> tuple[Key, ...]:
        for source, spec in zip(node.sources, node.input_specs, strict=True):
            if source.kind not in ("node", *MODEL_STATE):
                self._own(self.key(source), source, spec)
        if shares_memory(node) and node.sources:
            return (self.key(node.sources[0]),) * len(node.output_specs)
        keys = []
        for slot, spec in enumerate(node.output_specs):
            source = Source("node", node.index, slot)
            keys.append(("node", node.index, slot, ""))
            self._own(keys[-1], source, spec)
        return tuple(keys)

    def _own(self, key: Key, source: Source, spec: TensorSpec) -> None:
        self.bytes.setdefault(key, self._sizes(source, spec))

    def key(self, source: Source) -> Key:
        """The storage that a tensor lies in."""
        if source.kind == "node":
            return self._keys[source.node][source.slot]
        return (source.kind, -1, 0, source.name)

    def outputs(self, node: OpNode) -> tuple[Key, ...]:
        """Storages of a call's outputs."""
        return self._keys[node.index]


class Kept:
    """What every call keeps for its backward pass.

    Args:
        graph: The model.
        sizes: Bytes of a tensor, given its source and its shape; a precision changes it.
        device: `cuda` or `cpu`; a few kernels keep other things on the CPU.
        casts: Bytes of the copy that autocast makes of an input, 0 where it makes none.
    """

    def __init__(
        self,
        graph: GraphData,
        sizes: Sizes = stored_bytes,
        device: str = "cuda",
        casts: Casts | None = None,
    ) -> None:
        """Goes through the graph once."""
        self.graph, self.sizes = graph, sizes
        self.storages = Storages(graph, sizes)
        self._device, self._casts = device, casts
        self.by_node = [self._saved(node) for node in graph.nodes]

    def _saved(self, node: OpNode) -> dict[Key, int]:
        saved = saved_by(node, self._device)
        kept: dict[Key, int] = {}
        for position in saved.inputs:
            if position < len(node.sources):
                key, size = self._operand(node, position)
                if key[0] not in MODEL_STATE:
                    kept[key] = size
        for slot in saved.outputs:
            if slot < len(node.output_specs):
                key = self.storages.outputs(node)[slot]
                if key[0] not in MODEL_STATE:
                    kept[key] = self.storages.bytes[key]
        if saved.extra_bytes:
            kept[("extra", node.index, 0, "")] = saved.extra_bytes
        return kept

    def _operand(self, node: OpNode, position: int) -> tuple[Key, int]:
        key = self.storages.key(node.sources[position])
        copied = self._casts(node, position) if self._casts is not None else 0
        if copied and key[0] in MODEL_STATE:
            # autocast converts a weight once, however often it is used
            return ("cast", key[1], key[2], key[3]), copied
        if copied:
            # anything else anew for every call (at::autocast::cached_cast caches leaves alone)
            return ("cast", node.index, position, ""), copied
        if key[0] in MODEL_STATE:
            return key, 0
        if operand_copy(self.graph.nodes, node, position) and not _fused(node):
            size = self.sizes(node.sources[position], node.input_specs[position])
            return ("copy", node.index, position, ""), size
        return key, self.storages.bytes[key]

    @cached_property
    def regions(self) -> dict[int, list[OpNode]]:
        """Calls of every checkpointed region."""
        found: dict[int, list[OpNode]] = {}
        for node in self.graph.nodes:
            if node.region:
                found.setdefault(node.region, []).append(node)
        return found

    def region_inputs(self, region: int) -> dict[Key, int]:
        """What a checkpointed region keeps: the tensors that enter it."""
        members = self.regions[region]
        inside = {node.index for node in members}
        kept: dict[Key, int] = {}
        for node in members:
            for source in node.sources:
                key = self.storages.key(source)
                if key[0] not in MODEL_STATE and source.node not in inside:
                    kept[key] = self.storages.bytes[key]
        return kept

    @cached_property
    def all(self) -> dict[Key, int]:
        """All storages that live from the forward to the backward pass, with their bytes."""
        kept: dict[Key, int] = {}
        for node, saved in zip(self.graph.nodes, self.by_node, strict=True):
            if not node.region:
                kept |= saved
        for region, members in self.regions.items():
            if any(node.differentiable for node in members):
                kept |= self.region_inputs(region)
        return kept


def saved_bytes(graph: GraphData, device: str = "cuda") -> int:
    """Bytes that live from the forward to the backward pass, each storage once."""
    return sum(Kept(graph, device=device).all.values())


def saved_by_node(graph: GraphData) -> list[int]:
    """Bytes each call keeps for the backward pass, every storage at the first that keeps it."""
    if graph.mode != "train":
        return [0] * len(graph.nodes)
    kept = Kept(graph)
    seen: set[Key] = set()
    result = []
    for saved in kept.by_node:
        new = {key: size for key, size in saved.items() if key in kept.all and key not in seen}
        seen.update(new)
        result.append(sum(new.values()))
    return result
