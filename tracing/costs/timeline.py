"""Memory of one iteration: which tensors live, from which call to which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracing.costs.storages import Casts, Kept, Key, Sizes, Storages, stored_bytes
from tracing.graph.data import GraphData
from tracing.graph.specs import OpNode


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory while one call runs.

    Attributes:
        phase: `forward` or `backward`.
        node: Index of the call.
        activation_bytes: Tensors between calls, what is saved, and gradients of both.
        gradient_bytes: Gradients of parameters that exist by then.
    """

    phase: str
    node: int
    activation_bytes: int
    gradient_bytes: int

    @property
    def bytes(self) -> int:
        """Both together."""
        return self.activation_bytes + self.gradient_bytes


@dataclass(frozen=True, slots=True)
class Timeline:
    """Memory over one iteration, without weights, optimizer state and the batch itself."""

    moments: tuple[Moment, ...]
    saved_bytes: int
    input_bytes: int

    @property
    def peak(self) -> Moment:
        """The moment of the highest sum."""
        return max(
            self.moments, key=lambda moment: moment.bytes, default=Moment("forward", 0, 0, 0)
        )

    @property
    def forward_peak_bytes(self) -> int:
        """The highest sum of the forward pass."""
        return max((m.bytes for m in self.moments if m.phase == "forward"), default=0)


def activation_timeline(
    graph: GraphData,
    sizes: Sizes = stored_bytes,
    *,
    device: str = "cuda",
    casts: Casts | None = None,
) -> Timeline:
    """Follows the memory of one iteration call by call.

    Args:
        graph: The model; in inference mode nothing is saved and there is no backward pass.
        sizes: Bytes of a tensor, given its source and its shape; a precision changes it.
        device: `cuda` or `cpu`.
        casts: Bytes of the copy that autocast makes of an input, 0 where it makes none.
    """
    kept = Kept(graph, sizes, device, casts)
    training = graph.mode == "train"
    moments = list(_forward(kept, training))
    if training:
        moments += _Backward(kept).run()
    inputs = sum(size for key, size in kept.storages.bytes.items() if key[0] == "input")
    saved = sum(v for k, v in kept.all.items() if k[0] != "input") if training else 0
    return Timeline(tuple(moments), saved, inputs)


def _last_uses(graph: GraphData, storages: Storages) -> dict[int, list[Key]]:
    """Storages by the last call that touches them."""
    last: dict[Key, int] = {}
    for node in graph.nodes:
        keys = [*(storages.key(source) for source in node.sources), *storages.outputs(node)]
        last.update(dict.fromkeys(keys, node.index))
    last.update({storages.key(source): len(graph.nodes) for source in graph.outputs})
    ends: dict[int, list[Key]] = {}
    for key, index in last.items():
        ends.setdefault(index, []).append(key)
    return ends


def _forward(kept: Kept, training: bool) -> Iterator[Moment]:
    storages = kept.storages
    ends = _last_uses(kept.graph, storages)
    stays = kept.all if training else {}
    live, alive = 0, set[Key]()
    for node in kept.graph.nodes:
        new = {key: storages.bytes[key] for key in storages.outputs(node) if key[0] == "node"}
        if training and not node.region:
            new |= kept.by_node[node.index]
        for key, size in new.items():
            if key not in alive and key[0] != "input":
                alive.add(key)
                live += size
        yield Moment("forward", node.index, live, 0)
        for key in ends.get(node.index, ()):
            if key in alive and key not in stays:
                alive.remove(key)
                live -= storages.bytes[key]


class _Backward:
    """Saved tensors go as their last user has run; gradients come and go between the calls."""

    def __init__(self, kept: Kept) -> None:
        """Starts with all that is saved."""
        self.kept = kept
        self.saved = {key: size for key, size in kept.all.items() if key[0] != "input"}
        self.live, self.gradients = sum(self.saved.values()), 0
        self.between: dict[Key, int] = {}
        self.parameters: set[str] = set()
        self.restored: set[int] = set()

    def run(self) -> Iterator[Moment]:
        """Yields one moment for each backward call."""
        first = self._last_readers()
        storages = self.kept.storages
        for node in reversed(self.kept.graph.nodes):
            if not node.differentiable:
                continue
            self._restore(node)
            self._gradients(node)
            yield Moment("backward", node.index, self.live, self.gradients)
            for key in first.get(node.index, ()):
                self.live -= self.saved.pop(key, 0)
            for key in storages.outputs(node):
                if key[1] == node.index:
                    self.live -= self.between.pop(key, 0)

    def _restore(self, node: OpNode) -> None:
        """A checkpointed region runs again before the first of its backward calls."""
        if not node.region or node.region in self.restored:
            return
        self.restored.add(node.region)
        for member in self.kept.regions[node.region]:
            for key, size in self.kept.by_node[member.index].items():
                if key not in self.saved and key[0] != "input":
                    self.saved[key] = size
                    self.live += size

    def _gradients(self, node: OpNode) -> None:
        inputs = zip(node.sources, node.input_specs, node.needs_grad, strict=True)
        for source, spec, need in inputs:
            key = self.kept.storages.key(source)
            if need and source.kind == "param" and source.name not in self.parameters:
                self.parameters.add(source.name)
                self.gradients += self.kept.sizes(source, spec)
            elif need and key[0] == "node" and key not in self.between:
                self.between[key] = self.kept.storages.bytes[key]
                self.live += self.between[key]

    def _last_readers(self) -> dict[int, list[Key]]:
        """The call whose backward is the last to need each storage."""
        seen: set[Key] = set()
        first: dict[int, list[Key]] = {}
        for index, saved in enumerate(self.kept.by_node):
            for key in saved:
                if key not in seen:
                    seen.add(key)
                    first.setdefault(index, []).append(key)
        return first
