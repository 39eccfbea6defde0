"""Puts trained weights into the package, with intervals and scores from the accuracy study.

prenet train -o runs/shipped experiments/configs/shipped.toml
python -m experiments.ship runs/shipped
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from experiments.tables import intervals, load_results, merged
from prenet_gnn.checkpoint import SHIPPED, load_checkpoint, save_checkpoint

LICENCES = {
    "timm": "huggingface/pytorch-image-models, Apache-2.0",
    "timm-history": "huggingface/pytorch-image-models, Apache-2.0",
    "pytorch-gpu-benchmark": "ryujaehun/pytorch-gpu-benchmark, MIT",
    "pytorch-gpu-benchmark-forks": "five forks of ryujaehun/pytorch-gpu-benchmark, MIT",
    "neusight": "sitar-lab/NeuSight, MIT",
    "nvidia-dle": "NVIDIA/DeepLearningExamples, BSD-3-Clause, Apache-2.0 and MIT by folder",
}


def ship(source: Path, target: Path = SHIPPED) -> None:
    """Copies a checkpoint and completes its description."""
    checkpoint = load_checkpoint(source)
    results = load_results()
    facts = dict(checkpoint.facts)
    facts["licences"] = {
        name: LICENCES.get(name, "see the data's README") for name in facts["sources"]
    }
    facts["accuracy"] = {
        "scores": merged(results),
        "folds": [result["fold"] for result in results],
        "seeds": sorted({result["seed"] for result in results}),
        "command": "python -m experiments.accuracy --fold N, then python -m experiments.tables",
    }
    widths = intervals(results) or checkpoint.intervals
    save_checkpoint(replace(checkpoint, facts=facts, intervals=widths), target)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder that `prenet train` wrote")
    args = parser.parse_args()
    ship(args.source)
    print(f"shipped {args.source} to {SHIPPED}")


if __name__ == "__main__":
    main()
