"""Puts trained weights into the package, with intervals and scores from the accuracy study.

prenet train -o runs/shipped
python -m experiments.ship runs/shipped
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.shared.command import Option, Options, command
from experiments.shared.results import read_result
from experiments.writing.accuracy import intervals, load_results, merged
from prenet_gnn.errors import CheckpointError
from prenet_gnn.network.checkpoint import SHIPPED, Checkpoint, load_checkpoint, save_checkpoint
from prenet_gnn.network.interval import Intervals

LICENCES = {
    "timm": "huggingface/pytorch-image-models, Apache-2.0",
    "timm-history": "huggingface/pytorch-image-models, Apache-2.0",
    "pytorch-gpu-benchmark": "ryujaehun/pytorch-gpu-benchmark, MIT",
    "pytorch-gpu-benchmark-forks": "five forks of ryujaehun/pytorch-gpu-benchmark, MIT",
    "neusight": "sitar-lab/NeuSight, MIT",
    "vidur": "microsoft/vidur, MIT",
    "deepbench": "baidu-research/DeepBench, Apache-2.0",
    "eleutherai-sizing": "EleutherAI/cookbook, Apache-2.0",
    "mamf": "stas00/ml-engineering, CC-BY-SA-4.0 (figures of one table)",
    "ml-performance-prediction": "CDECatapult/ml-performance-prediction, Apache-2.0",
    "nvidia-dle": "NVIDIA/DeepLearningExamples, BSD-3-Clause, Apache-2.0 and MIT by folder",
}


def joined(sources: Sequence[Path]) -> Checkpoint:
    """One checkpoint with the networks of all folders.

    Raises:
        CheckpointError: The folders were trained on other rows or with other networks.
    """
    first, *others = [load_checkpoint(source) for source in sources]
    for other, source in zip(others, sources[1:], strict=True):
        same = other.config == first.config and other.latents == first.latents
        if not same:
            raise CheckpointError(f"'{source}' does not go with '{sources[0]}'.")
    models = tuple(model for part in (first, *others) for model in part.models)
    runs = [part.facts.run for part in (first, *others)]
    return replace(first, models=models, facts=replace(first.facts, run=runs))


def ship(sources: Sequence[Path], target: Path = SHIPPED) -> None:
    """Copies checkpoints into one and completes its description.

    Where `experiments.outside` was run, its half-widths inside and outside of what was seen are
    added.
    """
    checkpoint = joined(sources)
    results = load_results()
    facts = checkpoint.facts
    sources = (*facts.sources, *facts.operator_sources)
    licences = {name: LICENCES.get(name, "see the data's README") for name in sources}
    accuracy = {
        "scores": merged(results),
        "folds": sorted({result["fold"] for result in results}),
        "seeds": sorted({result["seed"] for result in results}),
        "command": "python -m experiments.accuracy --fold N, then python -m experiments.tables",
    }
    widths = intervals(results) or checkpoint.intervals.to_dict()
    widths = widths | read_result("outside").get("intervals", {})
    facts = replace(facts, licences=licences, accuracy=accuracy)
    found = replace(checkpoint, facts=facts, intervals=Intervals.from_dict(widths))
    save_checkpoint(found, target)


@command(Option("sources", type=Path, nargs="+", help="folders that `prenet train` wrote"))
def main(options: Options) -> None:
    """Ships the networks of all folders."""
    ship(options.sources)
    print(f"shipped {len(options.sources)} runs to {SHIPPED}")


if __name__ == "__main__":
    main()
