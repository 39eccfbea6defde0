"""Fills a builder from `torch.export`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch

from tracing.capture.builder import Builder, Context
from tracing.capture.calls import Flat
from tracing.capture.values import is_tensor, spec_of
from tracing.graph.specs import ParamSpec, Source, TensorSpec

INNER = "model"


def export(flat: Flat, tensors: list[torch.Tensor]) -> Any:
    """The exported program; a failure does not print what was traced."""
    with mock.patch("torch.export._trace.print", lambda *_, **__: None, create=True):
        return torch.export.export(flat, tuple(tensors), strict=False)


def walk(
    program: Any, builder: Builder, tensors: list[torch.Tensor], names: list[str]
) -> tuple[list[tuple[Source, TensorSpec]], bool]:
    """Adds all calls of a program.

    Returns:
        The tensors that the model returned, and whether they are its own loss.
    """
    values = _placeholders(program, builder.parameters.values(), tensors, names)
    with torch.no_grad():
        outputs = builder.walk(program.graph_module, values, Context())
    results = [v for v in outputs if is_tensor(v)][_mutations(program) :]
    return results, "'loss'" in str(program.call_spec.out_spec)


def _mutations(program: Any) -> int:
    kinds = program.graph_signature.output_specs
    return sum(1 for spec in kinds if "MUTATION" in str(spec.kind))


def _placeholders(
    program: Any, parameters: Iterable[ParamSpec], tensors: list[torch.Tensor], names: list[str]
) -> list[Any]:
    known = {p.name: p for p in parameters}
    given = iter(zip(names, tensors, strict=True))
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        target = (spec.target or "").removeprefix(INNER + ".")
        if kind == "USER_INPUT":
            name, tensor = next(given)
            flag = int(tensor.requires_grad)
            values.append((Source("input", slot=flag, name=name), spec_of(tensor)))
        elif target in known:
            parameter = known[target]
            values.append(
                (Source("buffer" if parameter.is_buffer else "param", name=target), parameter.spec)
            )
        else:
            constant = program.constants.get(spec.target)
            if isinstance(constant, torch.Tensor):
                values.append((Source("const", name=target), spec_of(constant)))
            else:
                values.append(constant)
    return values
