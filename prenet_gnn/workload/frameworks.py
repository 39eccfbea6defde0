"""What differs between versions of PyTorch: which kernels they run unless told otherwise."""

from __future__ import annotations

import re

Version = tuple[int, int]

# PyTorch 2.0 turned several defaults at once: attention is one fused operator
# (`scaled_dot_product_attention`, which timm uses where it exists), optimizers update all tensors
# with a few `foreach` kernels, and `zero_grad` frees the gradients instead of filling them.
FUSED_ATTENTION_SINCE = FOREACH_SINCE = (2, 0)
# Models of transformers ran eager attention longer: fused attention became their default at the
# end of 2023, and all measured rows of theirs, which are of PyTorch before 2.5, are eager.
FUSED_TRANSFORMERS_SINCE = (2, 5)
# From this version on attention outside of fused kernels computes in float32 whatever its inputs
# (`torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp`), and its softmax looks for rows that
# are masked out altogether (`torch._safe_softmax`).
SINGLE_ATTENTION_SINCE = (2, 5)


def version_in(framework: str) -> Version | None:
    """Major and minor version in the name of a framework; None where there is none."""
    match = re.match(r"(?:py)?torch[- ]?(\d+)\.(\d+)", framework)
    return (int(match[1]), int(match[2])) if match else None


def fuses_attention(library: str, version: Version) -> bool:
    """Whether models of a library run attention as one operator under a version."""
    transformers = library == "transformers"
    return version >= (FUSED_TRANSFORMERS_SINCE if transformers else FUSED_ATTENTION_SINCE)


def computes_in_single(version: Version | None) -> bool:
    """Whether attention outside of fused kernels computes in float32 under a version."""
    return version is not None and version >= SINGLE_ATTENTION_SINCE


def is_foreach(version: Version | None) -> bool:
    """Whether a version updates all tensors at once and frees gradients; None is a recent one."""
    return version is None or version >= FOREACH_SINCE
