"""A graph as JSON and back."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, TypeVar

from tracing.errors import TraceError
from tracing.graph.attention_copies import settle_copies
from tracing.graph.data import GraphData
from tracing.graph.specs import ITEM_BYTES, OpNode, ParamSpec, Source, TensorSpec
from tracing.views.files import write_atomic

Graph = TypeVar("Graph", bound=GraphData)
SCHEMA = "prenet-opgraph-1"


def _spec_out(spec: TensorSpec) -> list[Any]:
    return [spec.dtype, *spec.shape]


def _spec_in(value: list[Any]) -> TensorSpec:
    dtype, *shape = value
    if dtype not in ITEM_BYTES or any(not isinstance(s, int) or s < 0 for s in shape):
        raise ValueError(f"bad tensor {value!r}")
    return TensorSpec(tuple(shape), dtype)


def _source_out(source: Source) -> list[Any]:
    if source.kind == "node":
        return [source.kind[0], source.node, source.slot]
    # the slot of an input says that it wants a gradient
    return [source.kind[0], source.name, *([source.slot] if source.slot else [])]


_KINDS = {"n": "node", "p": "param", "b": "buffer", "i": "input", "c": "const"}


def _source_in(value: list[Any]) -> Source:
    kind, first, *rest = _KINDS[value[0]], *value[1:]
    if kind == "node":
        return Source(kind, first, rest[0])
    return Source(kind, slot=int(rest[0]) if rest else 0, name=first)


def _node_out(node: OpNode) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": node.name,
        "target": node.target,
        "kind": node.kind,
        "module": node.module,
        "from": [_source_out(s) for s in node.sources],
        "in": [_spec_out(s) for s in node.input_specs],
        "out": [_spec_out(s) for s in node.output_specs],
        "attrs": node.attrs,
        "grad": "".join("1" if need else "0" for need in node.needs_grad),
    }
    if node.differentiable:
        data["diff"] = True
    if node.region:
        data["region"] = node.region
    if node.autocast:
        data["autocast"] = node.autocast
    return data


def _node_in(index: int, data: dict[str, Any]) -> OpNode:
    return OpNode(
        index=index,
        name=data["name"],
        target=data["target"],
        kind=data["kind"],
        module=data["module"],
        sources=tuple(_source_in(s) for s in data["from"]),
        input_specs=tuple(_spec_in(s) for s in data["in"]),
        output_specs=tuple(_spec_in(s) for s in data["out"]),
        attrs=data["attrs"],
        needs_grad=tuple(c == "1" for c in data["grad"]),
        differentiable=bool(data.get("diff")),
        region=int(data.get("region", 0)),
        autocast=data.get("autocast", ""),
    )


def _param_out(param: ParamSpec) -> list[Any]:
    row = [param.name, _spec_out(param.spec), int(param.requires_grad), int(param.is_buffer)]
    return [*row, int(param.unique), *([param.packed_numel] if param.packed_numel else [])]


def _param_in(
    name: str, spec: list[Any], grad: int, buffer: int, unique: int, packed: int = 0
) -> ParamSpec:
    return ParamSpec(name, _spec_in(spec), bool(grad), bool(buffer), bool(unique), packed)


def to_dict(graph: GraphData) -> dict[str, Any]:
    """The graph as plain data."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "batch_size": graph.batch_size,
        "mode": graph.mode,
        "meta": graph.meta,
        "inputs": {name: _spec_out(spec) for name, spec in graph.inputs.items()},
        "outputs": [_source_out(s) for s in graph.outputs],
        "parameters": [_param_out(p) for p in graph.parameters],
        "nodes": [_node_out(node) for node in graph.nodes],
    }
    if graph.probe is not None:
        data["probe"] = [graph.probe[0], list(graph.probe[1])]
    return data


def from_dict(data: dict[str, Any], make: type[Graph]) -> Graph:
    """Builds a graph from plain data; anything unexpected raises `TraceError`."""
    try:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"schema is {data.get('schema')!r}, expected '{SCHEMA}'")
        probe = data.get("probe")
        return make(
            nodes=settle_copies([_node_in(i, node) for i, node in enumerate(data["nodes"])]),
            parameters=tuple(_param_in(*row) for row in data["parameters"]),
            inputs={name: _spec_in(spec) for name, spec in data["inputs"].items()},
            outputs=tuple(_source_in(s) for s in data["outputs"]),
            batch_size=int(data["batch_size"]),
            mode=data["mode"],
            meta=data["meta"],
            probe=None if probe is None else (int(probe[0]), tuple(probe[1])),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        text = f"this is no graph of ours: {error}; write it with graph.to_json"
        raise TraceError(text) from None


def to_json(graph: GraphData, path: str | Path | None = None) -> str:
    """JSON text of a graph; a file appears whole or not at all."""
    text = json.dumps(to_dict(graph), separators=(",", ":"))
    if path is not None:
        write_atomic(Path(path), text)
    return text


def from_json(source: str | Path, make: type[Graph]) -> Graph:
    """Reads JSON text (starting with a brace) or a file written by `to_json` into a new graph."""
    if isinstance(source, str) and source.lstrip().startswith("{"):
        text, name = source, "the text"
    else:
        path = Path(source)
        name = f"'{path}'"
        try:
            raw = path.read_bytes()
            text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
            raise TraceError(f"cannot read graph {name}: {error}") from None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TraceError(f"{name} is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise TraceError(f"{name} holds no graph; write one with graph.to_json")
    return from_dict(data, make)
