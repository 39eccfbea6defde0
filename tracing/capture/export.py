"""Sees a model's calls through `torch.export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import torch

from tracing.capture.arguments import is_operand, spec_of
from tracing.capture.builder import Builder, Returned
from tracing.capture.model_call import INNER, Flat
from tracing.capture.program import Region, walk
from tracing.graph.specs import ParamSpec, Source


def export(flat: Flat, inputs: Mapping[str, torch.Tensor]) -> Any:
    """The exported program; a failure does not print what was traced."""
    with mock.patch("torch.export._trace.print", lambda *_, **__: None, create=True):
        return torch.export.export(flat, tuple(inputs.values()), strict=False)


def read_program(program: Any, builder: Builder, inputs: Mapping[str, torch.Tensor]) -> Returned:
    """Adds all calls of a program."""
    values = _placeholders(program, builder.parameters, inputs)
    with torch.no_grad():
        outputs = walk(builder, program.graph_module, values, Region())
    results = [v for v in outputs if is_operand(v)][_mutations(program) :]
    return Returned(results, "'loss'" in str(program.call_spec.out_spec))


def _mutations(program: Any) -> int:
    kinds = program.graph_signature.output_specs
    return sum(1 for spec in kinds if "MUTATION" in str(spec.kind))


def _placeholders(
    program: Any, parameters: Mapping[str, ParamSpec], inputs: Mapping[str, torch.Tensor]
) -> list[Any]:
    given = iter(inputs.items())
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        target = (spec.target or "").removeprefix(INNER + ".")
        if spec.kind.name == "USER_INPUT":
            name, tensor = next(given)
            flag = int(tensor.requires_grad)
            values.append((Source("input", slot=flag, name=name), spec_of(tensor)))
        elif target in parameters:
            parameter = parameters[target]
            kind = "buffer" if parameter.is_buffer else "param"
            values.append((Source(kind, name=target), parameter.spec))
        else:
            constant = program.constants.get(spec.target)
            if isinstance(constant, torch.Tensor):
                constant = (Source("const", name=target), spec_of(constant))
            values.append(constant)
    return values
