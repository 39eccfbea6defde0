"""How tests fit a small network."""

from __future__ import annotations

from prenet_gnn.training.fit import Material, Watch, fit


def fit_rows(rows, train, validation, network, settings, *, operators=None, **watch):
    """Fits to some rows; see `prenet_gnn.training.fit`."""
    return fit(
        Material(rows, train, validation, operators), network, settings, watch=Watch(**watch)
    )
