"""What a trial is: a short fit to the sample, judged on families and devices it has not seen."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.errors import DataError
from prenet_gnn.network.paired import general_config
from prenet_gnn.training.config import RunConfig
from prenet_gnn.training.fit import Fitted, Material, Watch, fit, predict_rows
from prenet_gnn.training.metrics import mape
from prenet_gnn.tuning.proxy import PART, VALIDATED, Proxy
from prenet_gnn.tuning.space import draw, nested
from prenet_gnn.tuning.trials import BEAT

if TYPE_CHECKING:
    from collections.abc import Callable

    from prenet_gnn.training.rows import Rows
    from prenet_gnn.tuning.trials import Objective


def proxy_scores(fitted: Fitted, proxy: Proxy) -> dict[str, float]:
    """MAPE on the rows of unseen families, of unseen devices, and their mean."""
    predicted = predict_rows(fitted, proxy.rows, proxy.validation)
    part = proxy.rows.frame[PART].to_numpy()[proxy.validation]
    true = proxy.rows.seconds[proxy.validation]
    scores = {kind: mape(true[part == kind], predicted[part == kind]) for kind in VALIDATED}
    return {**scores, "mean": float(np.mean(list(scores.values())))}


def fit_proxy(
    proxy: Proxy,
    config: RunConfig,
    epochs: int,
    report: Callable[[int, dict[str, float]], None] | None = None,
    operators: Rows | None = None,
) -> Fitted:
    """Fits to the sample with the settings of a configuration, for fewer epochs."""
    train = replace(config.train, epochs=epochs, rows_per_epoch=0)
    validation = proxy.validation if report is not None else np.zeros(0, dtype=np.int64)
    material = Material(proxy.rows, proxy.train, validation, operators)
    watch = Watch(report=report, validate_every=1)
    return fit(material, general_config(config.model), train, watch=watch)


def make_objective(
    proxy: Proxy, base: dict[str, Any], epochs: int, *, with_latency: bool = False
) -> Objective:
    """The objective of a study.

    Args:
        proxy: Rows to fit to and to judge on.
        base: Settings that are not searched, as in a configuration file.
        epochs: Epochs per trial.
        with_latency: Also minimise the seconds per predicted row; such trials are not pruned.
    """

    def objective(trial: Any) -> float | tuple[float, ...]:
        config = RunConfig.from_dict(nested(draw(trial), base))

        def report(epoch: int, figures: dict[str, float]) -> None:
            import optuna

            trial.set_user_attr(BEAT, time.time())
            if "mape" in figures and not with_latency:
                trial.report(figures["mape"], epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned

        return _judged(trial, proxy, config, epochs, report, with_latency)

    return objective


def _judged(
    trial: Any,
    proxy: Proxy,
    config: RunConfig,
    epochs: int,
    report: Callable[[int, dict[str, float]], None],
    with_latency: bool,
) -> float | tuple[float, ...]:
    import optuna

    started = time.perf_counter()
    try:
        fitted = fit_proxy(proxy, config, epochs, report)
        trained = time.perf_counter()
        scores = proxy_scores(fitted, proxy)
    except DataError as error:  # predictions that are no numbers: the settings diverge
        trial.set_user_attr("error", str(error))
        raise optuna.TrialPruned from None
    latency = (time.perf_counter() - trained) / len(proxy.validation)
    for name, value in {**scores, "fit_s": trained - started, "latency_s": latency}.items():
        trial.set_user_attr(name, value)
    return (scores["mean"], latency) if with_latency else scores["mean"]
