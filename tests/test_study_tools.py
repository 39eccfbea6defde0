"""What studies share: the command line, averages and Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.shared import markdown, results
from experiments.shared.averages import grouped, means, over_folds, over_seeds
from experiments.shared.command import QUICK, SEED, OneOf, Option, Options, command
from prenet_gnn.errors import ConfigError


@command(OneOf(Option("--one", type=int, default=1), Option("--two")), SEED, QUICK)
def main(options: Options) -> None:
    if options.one == 0:
        raise ConfigError("one must not be 0.")
    print(options.one, options.two, options.seed, options.quick)


# as `python -m` would set it
__spec__.name = "experiments.main"  # type: ignore[union-attr]


def test_a_command_reads_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--two", "x", "--quick"])
    assert capsys.readouterr().out == "1 x 0 True\n"
    with pytest.raises(SystemExit):
        main(["--one", "2", "--two", "x"])


def test_an_error_of_the_package_is_one_line() -> None:
    with pytest.raises(SystemExit, match=r"^main: one must not be 0\.$"):
        main(["--one", "0"])


def test_a_result_says_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(results.EXPERIMENTS / "tracing_tables" / "__main__.py")
    monkeypatch.setattr("sys.argv", [path, "flops", "--only", "a b"])
    command = "python -m experiments.tracing_tables flops --only 'a b'"
    facts = results.provenance(packages=("torch", "no-such-package"), rows=3)
    assert (facts["command"], facts["rows"]) == (command, 3)
    assert list(facts["versions"]) == ["torch"]


def test_a_result_is_written_and_read(tmp_path: Path) -> None:
    assert results.read_result("a", tmp_path) == {}
    results.write_result("a", {"x": 1.5}, tmp_path / "deep")
    assert results.read_result("a", tmp_path / "deep") == {"x": 1.5}
    with pytest.raises(ValueError, match="Out of range float"):
        results.write_result("a", {"x": float("nan")}, tmp_path)
    assert results.plain({"x": float("nan"), "y": 1}) == {"x": None, "y": 1}


def test_averages() -> None:
    lines = [{"rows": 10, "mape": 0.1, "bias": None}, {"rows": 30, "mape": 0.3, "bias": 0.5}]
    assert means(lines, ("mape", "bias")) == {"mape": pytest.approx(0.2), "bias": None}
    assert over_folds(lines, ("mape",)) == {"rows": 40, "mape": pytest.approx(0.25)}
    seeds = over_seeds([{**line, "rows": 10} for line in lines], ("mape",))
    assert (seeds["rows"], seeds["seeds"]) == (10, 2)
    assert (seeds["mape"], seeds["mape_sd"]) == (
        pytest.approx(0.2),
        pytest.approx(0.1414, abs=1e-4),
    )
    assert over_seeds(lines[:1], ("mape",))["mape_sd"] is None
    assert over_seeds([], ("mape",)) == {}
    assert grouped(["bb", "a", "cc"], len) == {2: ["bb", "cc"], 1: ["a"]}


def test_a_table_takes_formats_and_functions() -> None:
    rows = [{"name": "unseen-device", "mape": 0.123}]
    columns = {"part": markdown.spaced("name"), "MAPE": "**{mape:.1%}**"}
    assert markdown.table(rows, columns) == (
        "| part | MAPE |\n|---|---|\n| unseen device | **12.3%** |"
    )
