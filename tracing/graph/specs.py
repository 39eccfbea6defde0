"""What one tensor, one parameter and one operator call look like, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "complex32": 4, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2,
    "uint32": 4, "uint64": 8, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "quint8": 1, "qint8": 1, "qint32": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and element type of a tensor; no data."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar tensor."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Size in bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Size in bytes of a contiguous tensor of this shape."""
        return self.numel * self.item_bytes

    @property
    def is_floating(self) -> bool:
        """Whether a gradient can exist for such a tensor."""
        return self.dtype.startswith(("float", "bfloat", "complex"))


def unknown_dtypes(specs: Iterable[TensorSpec]) -> set[str]:
    """Element types whose size is not known."""
    return {spec.dtype for spec in specs} - set(ITEM_BYTES)


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """A parameter or buffer of the model; `unique` is False for a second name of one tensor.

    `packed_numel` is the number of logical elements of a weight that is stored packed (two 4-bit
    weights in a byte), 0 for all others.
    """

    name: str
    spec: TensorSpec
    requires_grad: bool
    is_buffer: bool = False
    unique: bool = True
    packed_numel: int = 0

    @property
    def numel(self) -> int:
        """Number of logical elements."""
        return self.packed_numel or self.spec.numel


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input tensor comes from.

    Attributes:
        kind: `node`, `param`, `buffer`, `input` or `const`.
        node: Index of the producing operator, -1 unless `kind` is `node`.
        slot: Which output of the producer.
        name: Name of the parameter, buffer or model input.
    """

    kind: str
    node: int = -1
    slot: int = 0
    name: str = ""


# A tensor of a graph: where it comes from and what it looks like.
Operand = tuple[Source, TensorSpec]


@dataclass(frozen=True, slots=True)
class OpNode:
    """One operator call of the forward pass.

    Attributes:
        index: Position in `GraphData.nodes`, a topological order.
        name: Unique name in the traced program.
        target: Operator overload, such as `aten.conv2d.default`.
        kind: Kind of operator from `tracing.costs.vocab`, such as `conv` or `linear`.
        module: Path of the innermost module, such as `layer1.0.conv1`; empty for the root.
        sources: Origin of every input tensor.
        input_specs: Shape and dtype of every input tensor, parallel to `sources`.
        output_specs: Shape and dtype of every output tensor.
        attrs: Arguments that are no tensors, by name.
        needs_grad: For every input tensor, whether the backward pass computes its gradient.
        differentiable: Whether autograd records this call.
        region: Checkpoint region the call belongs to, 0 for none; negative when reentrant.
        autocast: Autocast dtype of the region the call runs in; empty for none.
    """

    index: int
    name: str
    target: str
    kind: str
    module: str
    sources: tuple[Source, ...]
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    needs_grad: tuple[bool, ...] = ()
    differentiable: bool = False
    region: int = 0
    autocast: str = ""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Producer index of every input tensor, -1 for parameters, inputs and constants."""
        return tuple(source.node for source in self.sources)

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters this call reads."""
        return tuple(source.name for source in self.sources if source.kind == "param")

    @property
    def op(self) -> str:
        """Operator name without namespace, overload and in-place underscore."""
        return self.target.split(".")[1].rstrip("_") if "." in self.target else self.target

    @property
    def inplace(self) -> bool:
        """Whether the call overwrites its first input."""
        parts = self.target.split(".")
        if len(parts) < 2 or parts[1].startswith("__"):
            return len(parts) > 1 and parts[1].startswith("__i")  # such as `__iand__`
        return parts[1].endswith("_")

    @property
    def is_view(self) -> bool:
        """Whether it only looks at its input's memory; a few calls of kind `view` copy."""
        return self.kind == "view" and not self.attrs.get("copies")

    @property
    def output(self) -> TensorSpec:
        """The first output, or an empty tensor for a call without tensor output."""
        return self.output_specs[0] if self.output_specs else TensorSpec((0,))

    def tensor(self, position: int) -> TensorSpec:
        """The input tensor at `position`, or an empty tensor when there is none."""
        specs = self.input_specs
        return specs[position] if position < len(specs) else TensorSpec((0,))


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that one operator hands to another."""

    source: int
    target: int
    spec: TensorSpec

    @property
    def bytes(self) -> int:
        """Bytes the tensor occupies."""
        return self.spec.bytes
