"""Seconds of the processor, so that other load on the machine does not count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

# Name: zoo spec, batch size and sequence length of models whose predictions are timed.
MODELS = {
    "ResNet-50": ("timm:resnet50", 64, None),
    "BERT-large": ("transformers:bert-large-uncased", 16, 512),
    "Llama-3-8B": ("transformers:llama-3-8b", 1, 2048),
}


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of the processor that some work takes, added over threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def median_s(work: Callable[[], object], repeats: int) -> float:
    """Median of the seconds of several runs."""
    return statistics.median(cpu_s(work) for _ in range(repeats))
