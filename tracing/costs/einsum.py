"""Multiplications of an einsum, contracted from left to right as PyTorch does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

Labels = tuple[str, ...]


def _labels(term: str, rank: int) -> Labels:
    """One label per dimension; those of an ellipsis are numbered from the right."""
    before, dots, after = term.partition("...")
    if not dots:
        return tuple(term)
    hidden = rank - len(before) - len(after)
    return (*before, *(f"...{hidden - i}" for i in range(hidden)), *after)


def _read(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Labels], set[str]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_labels(term, len(s)) for term, s in zip(left.split(","), shapes, strict=True)]
    names = Counter(name for term in terms for name in term)
    hidden = {name for name in names if name.startswith("...")}
    if not arrow:
        return terms, {name for name, count in names.items() if count == 1} | hidden
    kept = set(right.replace("...", ""))
    return terms, kept | (hidden if "..." in right else set())


def einsum_flops(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """FLOPs of an einsum, two for each multiply-accumulate.

    A product in which no index is summed or new is pointwise and counts nothing, unless it is the
    only one: PyTorch then still calls a batched matrix product.
    """
    terms, out = _read(equation, shapes)
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for name, size in zip(term, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    total, joined = 0, set(terms[0])
    for position, term in enumerate(terms[1:], start=1):
        right = set(term)
        joint = joined | right
        later = out.union(*terms[position + 1 :])
        summed = (joined & right) - later
        if summed or not joined & right or joint - later or len(terms) == 2:
            total += 2 * math.prod(sizes[name] for name in joint)
        joined = joint & later
    return total
