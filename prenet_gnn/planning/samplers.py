"""Searches a space with Optuna: all of it where it is small, else by a multi-objective sampler.

Every try has two objectives, the time of the run and its cost (or its energy, where that is asked
for). Tries that no device holds or that break a limit are told as worse than everything allowed, in
the order of how far they are off, so that the sampler is led back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from prenet_gnn.errors import ConfigError
from prenet_gnn.planning.devices import unsupported_reason
from prenet_gnn.planning.space import Candidate, Space, Tried

if TYPE_CHECKING:
    from prenet_gnn.planning.limits import Limits
    from prenet_gnn.workload.workload import Workload

Values = tuple[float, float]
POPULATION = 32
# A grid of so many points takes about a minute.
MOST_POINTS = 20_000
# Worse than every run that is allowed, in seconds and in dollars or kWh
PENALTY = 1e12


class Study:
    """An Optuna study over the axes of a space."""

    def __init__(
        self, space: Space, limits: Limits, second: Callable[[Tried], float], seed: int
    ) -> None:
        """Lists the axes; `second` is the objective beside time."""
        self.space, self.limits, self.second, self.seed = space, limits, second, seed
        self.devices = {device.name: device for device in space.devices}
        self.by_setting: dict[tuple[Any, ...], Workload] = {_key(w): w for w in space.workloads}
        axes = list(zip(*self.by_setting, strict=True))
        names = ("precision", "channels_last", "compiled")
        self.axes: dict[str, list[Any]] = {"device": sorted(self.devices)}
        self.axes |= {n: sorted(set(values)) for n, values in zip(names, axes, strict=True)}
        self.axes["batch_size"] = sorted({size for size, _, _ in space.needs})
        self.axes["checkpointing"] = sorted({saves for _, _, saves in space.needs})

    @property
    def points(self) -> int:
        """Combinations of all axes."""
        return math.prod(len(values) for values in self.axes.values())

    def grid(self) -> list[Tried]:
        """Tries every combination, by Optuna's grid sampler."""
        if self.points > MOST_POINTS:
            raise ConfigError(
                f"the grid has {self.points:,} points, more than {MOST_POINTS:,}: name devices, "
                "batch sizes or precisions, or use the sampler nsga2."
            )
        import optuna

        found: dict[Candidate, Tried] = {}
        points = (
            self._chosen(dict(zip(self.axes, values, strict=True)))
            for values in itertools.product(*self.axes.values())
        )
        # Predicted in batches; the sampler itself asks for one point after the other.
        for answer in self.space.ask([point for point in points if point is not None]):
            found[answer.candidate] = answer
        visited: list[Tried] = []

        def objective(trial: Any) -> Values:
            candidate = self._candidate(trial)
            answer = None if candidate is None else found.get(candidate)
            if answer is None:
                return (2 * PENALTY, 2 * PENALTY)
            visited.append(answer)
            return self._values(answer)

        study = self._study(optuna.samplers.GridSampler(self.axes, seed=self.seed))
        study.optimize(objective, n_trials=self.points)
        return visited

    def evolve(self, known: Sequence[Tried], trials: int) -> list[Tried]:
        """Goes on from what is known, by NSGA-II (Deb et al. 2002)."""
        import optuna

        sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=self.seed)
        study = self._study(sampler)
        best = sorted(known, key=lambda answer: self._values(answer))
        # The sampler breeds from its last generation; the rest would only cost time
        cheap = sorted(known, key=lambda answer: self._values(answer)[::-1])
        parents = {id(a): a for a in (*best[: POPULATION // 2], *cheap[: POPULATION // 2])}
        for answer in parents.values():
            study.enqueue_trial(self._params(answer.candidate))
        # The parents are the first generation and ask for no prediction
        known_by = {answer.candidate: answer for answer in known}
        return self._run(study, len(parents) + trials, known_by)

    def _study(self, sampler: Any) -> Any:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)

    def _run(self, study: Any, trials: int, known: dict[Candidate, Tried]) -> list[Tried]:
        """Asks for a generation at a time, so that predictions come in batches."""
        found: list[Tried] = []
        for start in range(0, trials, POPULATION):
            count = min(POPULATION, trials - start)
            asked = [study.ask() for _ in range(count)]
            candidates = [self._candidate(trial) for trial in asked]
            new = list(dict.fromkeys(c for c in candidates if c is not None and c not in known))
            answers = self.space.ask(new)
            known |= {answer.candidate: answer for answer in answers}
            found += answers
            for trial, candidate in zip(asked, candidates, strict=True):
                answer = None if candidate is None else known.get(candidate)
                values = (2 * PENALTY,) * 2 if answer is None else self._values(answer)
                study.tell(trial, list(values))
        return found

    def _candidate(self, trial: Any) -> Candidate | None:
        """The combination that a trial names; None where the device cannot run it."""
        return self._chosen(
            {name: trial.suggest_categorical(name, values) for name, values in self.axes.items()}
        )

    def _chosen(self, chosen: dict[str, Any]) -> Candidate | None:
        device = self.devices[chosen["device"]]
        setting = (chosen["precision"], chosen["channels_last"], chosen["compiled"])
        workload = self.by_setting.get(setting)
        if workload is None or unsupported_reason(device, workload):
            return None
        return Candidate(device, workload, chosen["batch_size"], chosen["checkpointing"])

    def _params(self, candidate: Candidate) -> dict[str, Any]:
        setting = zip(("precision", "channels_last", "compiled"), _key(candidate.workload),
                      strict=True)  # fmt: skip
        return {
            "device": candidate.device.name,
            **dict(setting),
            "batch_size": candidate.batch_size,
            "checkpointing": candidate.checkpointing,
        }

    def _values(self, answer: Tried) -> Values:
        off = 0.0 if answer.fits else max(answer.memory_share - 1.0, 0.01)
        off += self.limits.excess(answer.option)
        if off:
            return (PENALTY * (1 + off), PENALTY * (1 + off))
        return (answer.option.total_s, self.second(answer))


def _key(workload: Workload) -> tuple[Any, ...]:
    return (workload.precision, workload.channels_last, workload.compiled)
