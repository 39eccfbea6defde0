"""Keeps the state of a fit after every epoch, and goes on from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from prenet_gnn.errors import CheckpointError

STATE, DRAFT = "last.ckpt", "next.ckpt"


def resume(
    fabric: Any, folder: Path | None, state: dict[str, Any], settings: Mapping[str, Any]
) -> tuple[int, list[dict[str, float]]]:
    """Fills the state with what was kept; gives the epochs that are done and their figures.

    The file is in torch's format, of which only tensors and plain values are read.

    Args:
        fabric: What loads into network, optimizer and schedule.
        folder: Where the state was kept; None keeps none.
        state: Network, optimizer and schedule.
        settings: What the fit runs with; a state that was kept with others is refused.

    Raises:
        CheckpointError: The file is damaged or holds code, or the run had other settings.
    """
    path = folder / STATE if folder is not None else None
    if path is None or not path.exists():
        return 0, []
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
        # states of earlier versions name no settings
        before = dict(kept.get("settings", settings))
        epoch, history = int(kept["epoch"]), list(kept["history"])
    except Exception as error:  # what torch raises depends on where the file is damaged
        raise CheckpointError(
            f"'{path}' is no state of a run ({type(error).__name__}): remove it to start afresh."
        ) from None
    changed = [name for name in settings if settings[name] != before.get(name)]
    if changed:
        raise CheckpointError(
            f"the run in '{folder}' was started with another {', '.join(changed)}: give the same "
            "settings and data to go on, or another folder."
        )
    try:
        fabric.load(path, state, weights_only=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"'{path}' holds another network than these settings make ({type(error).__name__}): "
            "remove it to start afresh."
        ) from None
    return epoch + 1, history


def keep(
    fabric: Any,
    folder: Path | None,
    state: Mapping[str, Any],
    settings: Mapping[str, Any],
    epoch: int,
    history: list[dict[str, float]],
) -> None:
    """Writes the state after an epoch; what was there before stays until it is whole."""
    if folder is None:
        return
    draft = folder / DRAFT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fabric.save(
            draft, {**state, "settings": dict(settings), "epoch": epoch, "history": history}
        )
        if fabric.is_global_zero:
            draft.replace(folder / STATE)
    except (OSError, RuntimeError) as error:
        # torch's writer reports a full disk as a RuntimeError
        draft.unlink(missing_ok=True)
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"cannot keep the run in '{folder}': {reason}") from None
    fabric.barrier()
