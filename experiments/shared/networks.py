"""Networks that have not seen what a fold holds out, and what they are fitted to and judged on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.data.splits import Split, joint_fold
from prenet_gnn.errors import CheckpointError
from prenet_gnn.training.prepare import prepare_operators, prepare_rows, without_chips

if TYPE_CHECKING:
    from prenet_gnn.training.fit import Fitted
    from prenet_gnn.training.rows import Rows


def rows_and_fold(number: int) -> tuple[Rows, Split]:
    """All measured rows, and the joint fold of that number."""
    rows = prepare_rows(None)
    return rows, joint_fold(rows.frame, number)


def operators_of(wanted: Callable[[str], bool]) -> Rows:
    """Operators timed alone on devices that are wanted."""
    operators = prepare_operators(None)
    chosen = [wanted(str(device)) for device in operators.frame["gpu"]]
    return operators.only(np.flatnonzero(chosen))


def load_networks(folder: Path, rows: Rows, fold: Split) -> list[Fitted]:
    """Networks of a checkpoint, or of a run of `experiments.accuracy`.

    Raises:
        CheckpointError: The weights are missing, or were fitted to what the fold holds out.
    """
    from prenet_gnn.network.checkpoint import DESCRIPTION, load_checkpoint
    from prenet_gnn.training.fit import Fitted
    from prenet_gnn.training.run import member_folder

    if member_folder(folder, 0).is_dir() and not (folder / DESCRIPTION).is_file():
        return [_of_accuracy(folder, rows, fold)]
    checkpoint = load_checkpoint(folder)
    seen = sorted(set(checkpoint.facts.devices) & set(fold.devices))
    if seen:
        raise CheckpointError(
            f"'{folder}' was fitted to rows of {', '.join(seen)}: name weights that were trained "
            "without this fold."
        )
    return [Fitted(model, checkpoint.latents, []) for model in checkpoint.models]


def _of_accuracy(folder: Path, rows: Rows, fold: Split) -> Fitted:
    """The state that `experiments.accuracy` keeps while it fits; its settings lie beside it."""
    import torch

    from prenet_gnn.network.config import NetworkConfig
    from prenet_gnn.network.latents import LatentSizes
    from prenet_gnn.network.paired import build_network
    from prenet_gnn.training.fit import Fitted
    from prenet_gnn.training.run import known_folder, member_folder

    facts: dict[str, Any] = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    if facts["held_out_devices"] != list(fold.devices):
        raise CheckpointError(f"'{folder}' holds out other devices than this fold.")
    latents = rows.latents(fold.train)
    if facts["config"]["train"].get("operators_per_step"):
        operators = without_chips(prepare_operators(None), fold.devices)
        latents = latents.with_devices(operators.latents(range(len(operators))).devices)
    config = NetworkConfig.from_dict(facts["config"]["model"])
    network = build_network(config, LatentSizes.of(latents))
    member = member_folder(folder, 0)
    parts = {"": member}
    if config.latents.settings:
        parts = {"general.": member, "known.": known_folder(member)}
    state: dict[str, Any] = {}
    for prefix, place in parts.items():
        kept = torch.load(place / "last.ckpt", weights_only=True)["model"]
        state.update({prefix + name: value for name, value in kept.items()})
    network.load_state_dict(state)
    return Fitted(network.eval(), latents, [])
