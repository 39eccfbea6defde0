"""Words that the command line must refuse: one clear line, the right status, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from bad_files import DEVICES, fill

from prenet_gnn.cli import main

TRACE, T4 = ("trace",), ("--hardware", "Tesla T4")
PREDICT = ("predict", "net.py:net", *T4)
COMPARE = ("compare", "net.py:net", "--devices", "Tesla T4")
PLAN = ("plan", "net.py:net", "--devices", "Tesla T4", "--samples", "1000")
MEASURE = ("measure", "net:mlp", "--device", "cpu")
CHECK = ("check", "net:mlp", "--device", "cpu")
USAGE, ERROR = 2, 1

CASES: list[tuple[tuple[str, ...], int, str]] = [
    # specs
    ((*TRACE, ""), ERROR, "spec is empty"),
    ((*TRACE, "  "), ERROR, "spec is empty"),
    ((*TRACE, "resnet18"), ERROR, "names no library"),
    ((*TRACE, ":"), ERROR, "not known"),
    ((*TRACE, "timm:"), ERROR, "names no model"),
    ((*TRACE, "tim:resnet18"), ERROR, "timm"),
    ((*TRACE, "timm:resnet81"), ERROR, "resnet81"),
    ((*TRACE, "torchvision:resnet81"), ERROR, "resnet81"),
    ((*TRACE, "timm:../../etc/passwd"), ERROR, "passwd"),
    ((*TRACE, "transformers:no-such-model"), ERROR, "no-such-model"),
    ((*TRACE, "transformers:missing.json"), ERROR, "missing.json"),
    ((*TRACE, "transformers:empty.json"), ERROR, "empty.json"),
    ((*TRACE, "transformers:list.json"), ERROR, "list.json"),
    ((*TRACE, "net.py"), ERROR, "net.py"),
    ((*TRACE, "net.py:"), ERROR, "net.py"),
    ((*TRACE, "net.py:nowhere"), ERROR, "has no function 'nowhere'"),
    ((*TRACE, "net.py:not_callable"), ERROR, "not_callable"),
    ((*TRACE, "net.py:no_tuple"), ERROR, "no_tuple"),
    ((*TRACE, "net.py:wrong_shape"), ERROR, "cannot trace Linear"),
    ((*TRACE, "net.py:stops"), ERROR, "from the user's own code"),
    ((*TRACE, "syntax.py:net"), ERROR, "syntax.py"),
    ((*TRACE, "boom.py:net"), ERROR, "boom while importing"),
    ((*TRACE, "missing.py:net"), ERROR, "missing.py"),
    ((*TRACE, "folder.py:net"), ERROR, "folder.py"),
    ((*TRACE, "missing.json"), ERROR, "missing.json"),
    ((*TRACE, "list.json"), ERROR, "list.json"),
    ((*TRACE, "empty.json"), ERROR, "empty.json"),
    *[
        ((*TRACE, f"net.py:{name}"), ERROR, says)
        for name, says in (
            ("exits", "ends the process"),
            ("endless", "recursion"),
            ("needs_more", "required positional argument"),
            ("wrong_name", "'inputs'"),
            ("four_things", "must return model, (model, args)"),
            ("the_class", "must return model, (model, args)"),
            ("generator", "not generator"),
            ("a_number", "not int"),
            ("no_inputs", "returns a model without inputs"),
            ("many_lines", "one two three"),
            ("says_nothing", "ValueError"),
            ("no_memory", "MemoryError"),
        )
    ],
    (("predict", "net.py:nothing", *T4), ERROR, "no operators"),
    (("compare", "net.py:nothing"), ERROR, "no operators"),
    (("plan", "net.py:nothing", "--samples", "9"), ERROR, "no operators"),
    (("predict", "net.py:no_sample", *T4), ERROR, "has no sample"),
    # sizes
    *[
        ((*TRACE, "net.py:net", "-b", n), ERROR, "batch_size must be")
        for n in ("0", "-1", "9" * 12)
    ],
    *[((*TRACE, "net.py:net", "-b", n), USAGE, "") for n in ("x", "1.5", "nan", "inf", "")],
    *[
        ((*TRACE, "net.py:net", "--image-size", n), ERROR, "image_size must be")
        for n in ("0", "-7")
    ],
    *[((*TRACE, "net.py:net", "--seq-len", n), ERROR, "seq_len must be") for n in ("0", "-7")],
    ((*TRACE, "net.py:net", "--depth", "-1"), USAGE, ""),
    # settings
    ((*TRACE, "net.py:net", "--mode", "trian"), ERROR, "Did you mean 'train'"),
    ((*TRACE, "net.py:net", "--attention", "flash"), ERROR, "sdpa, eager"),
    ((*TRACE, "net.py:net", "--html", "g.txt"), ERROR, ".html"),
    ((*TRACE, "net.py:net", "-o", "g.pickle"), ERROR, "g.pickle"),
    ((*TRACE, "net.py:net", "-o", "folder.py"), ERROR, "folder.py"),
    ((*TRACE, "net.py:net", "-o", "missing/g.json"), ERROR, "missing"),
    ((*PREDICT, "--precision", "fp23"), ERROR, "precision 'fp23' is not known"),
    ((*PREDICT, "--precision", ""), ERROR, "precision"),
    ((*PREDICT, "--optimizer", "adamx"), ERROR, "Did you mean 'adam"),
    ((*PREDICT, "--mode", "TRAIN"), ERROR, "mode"),
    ((*PREDICT, "--timed", "forwards"), ERROR, "Did you mean 'forward'"),
    ((*PREDICT, "--timed", "+"), ERROR, "timed phase"),
    ((*PREDICT, "--weights", "missing"), ERROR, "missing"),
    ((*PREDICT, "--weights", "net.py"), ERROR, "net.py"),
    ((*PREDICT, "--weights", "weights"), ERROR, "weights"),
    ((*PREDICT, "--calibration", "missing.json"), ERROR, "cannot read calibration"),
    ((*PREDICT, "--calibration", "list.json"), ERROR, "no calibration"),
    ((*PREDICT, "--calibration", "folder.py"), ERROR, "cannot read calibration"),
    ((*PREDICT, "-o", "missing/p.txt"), ERROR, "missing"),
    (("predict", "net.py:net"), USAGE, ""),
    (("predict", *T4), USAGE, ""),
    (("predict", "net.py:net", "extra", *T4), USAGE, ""),
    (("predict", "net.py:net", "--table", "jobs.csv", *T4), USAGE, ""),
    # devices
    *[
        (("predict", "net.py:net", "--hardware", name), ERROR, says)
        for name, says in (
            ("", "empty"),
            ("!!!", "empty"),
            ("RTX 9999", "Nearest"),
            ("V100", "several devices"),
            ("../../etc/passwd", "not in the catalogue"),
            ("missing.toml", "does not exist"),
            ("missing.json", "does not exist"),
            ("list.json", "fields of one device"),
            ("empty.json", "cannot be read"),
            ("folder.py", "not in the catalogue"),
        )
    ],
    (("hardware", "GTX 0"), ERROR, "GTX 0"),
    (("hardware", "list.json"), ERROR, "fields of one device"),
    *[(("predict", "net.py:net", "--hardware", f), ERROR, s) for f, (_, s) in DEVICES.items()],
    *[(("hardware", name), ERROR, says) for name, (_, says) in DEVICES.items()],
    # what a run can't be
    *[
        ((*PREDICT, "--framework", name), ERROR, "is no version of PyTorch")
        for name in ("banana", "torch-", "torch-2", "tensorflow-1.10", "-1.0")
    ],
    ((*PREDICT, "--timed", "forward+forward"), ERROR, "forward more than once"),
    ((*PREDICT, "--mode", "infer", "--timed", "backward"), ERROR, "inference does not have"),
    ((*PREDICT, "--report", "p.txt"), ERROR, "name it p.html"),
    ((*PREDICT, "--report", "missing/p.html"), ERROR, "missing/p.html: No such file"),
    ((*PREDICT, "-o", "/dev/full"), ERROR, "/dev/full: No space left"),
    ((*PREDICT, "--devices-per-node", "0"), ERROR, "between 1 and 16"),
    # tables
    *[
        (("predict", "--table", "jobs.csv", *words), USAGE, "")
        for words in (T4, ("-b", "4"), ("--precision", "fp16"), ("--report", "r.html"))
    ],
    (("predict", "--table", "missing.csv"), ERROR, "missing.csv"),
    (("predict", "--table", "folder.py"), ERROR, "folder.py"),
    (("predict", "--table", "net.py"), ERROR, "lacks the column"),
    (("predict", "--table", "list.json"), ERROR, "lacks the column"),
    (("predict", "--table", "jobs.csv", "--workers", "0"), USAGE, ""),
    (("predict", "--table", "jobs.csv", "-o", "missing/out.csv"), ERROR, "missing"),
    # compare and plan
    ((*COMPARE, "--sort", "beauty"), ERROR, "Allowed: time, cost"),
    ((*COMPARE, "--samples", "0"), ERROR, "samples must be"),
    ((*COMPARE, "--samples", "-4"), ERROR, "samples must be"),
    ((*COMPARE, "--top", "0"), USAGE, ""),
    ((*COMPARE, "--top", "-1"), USAGE, ""),
    ((*COMPARE, "--csv", "missing/d.csv"), ERROR, "missing"),
    (("compare", "net.py:net", "--devices", "RTX 9999"), ERROR, "RTX 9999"),
    *[
        ((*COMPARE, "--price", text), ERROR, "")
        for text in ("T4", "T4=", "=1", "Tesla T4=x", "Tesla T4=-1", "Tesla T4=nan", "Tesla T4=inf")
    ],
    ((*PLAN, "--objective", "beauty"), ERROR, "Allowed: time, cost"),
    ((*PLAN, "--sampler", "magic"), ERROR, "sampler 'magic'"),
    ((*PLAN, "--epochs", "0"), ERROR, "epochs must be above zero"),
    ((*PLAN, "--budget", "-1"), ERROR, "budget"),
    ((*PLAN, "--budget", "nan"), ERROR, "budget"),
    ((*PLAN, "--deadline", "0"), ERROR, "deadline"),
    ((*PLAN, "-b", "0"), ERROR, "batch"),
    ((*PLAN, "--precision", "fp23"), ERROR, "fp23"),
    ((*PLAN, "--trials", "0"), ERROR, "trials"),
    ((*PLAN, "--optimizer", "x"), ERROR, "optimizer 'x'"),
    ((*PLAN, "--seed", "-1"), ERROR, "seed must be between 0"),
    ((*PLAN, "--seed", "9" * 30), ERROR, "seed must be between 0"),
    ((*PLAN, "--epochs", "9" * 30), ERROR, "epochs must be between 0"),
    ((*PLAN, "--samples", "9" * 30), ERROR, "samples must be between 0"),
    ((*PLAN, "--price", "Tesla T4=1", "--price", "Tesla T4=2"), ERROR, "given twice"),
    ((*PLAN, "--global-batch", "7", "-b", "2"), ERROR, "must divide the global batch 7"),
    ((*PLAN, "--framework", "banana"), ERROR, "is no version of PyTorch"),
    (("plan", "net.py:net", "--samples", "many"), USAGE, ""),
    # measure, check, calibrate
    *[
        ((*command, *option), status, says)
        for command in (MEASURE, CHECK)
        for option, status, says in (
            (("-b", "0"), ERROR, "batch_size must be"),
            (("--image-size", "-1"), ERROR, "image_size must be"),
            (("--iterations", "0"), USAGE, ""),
            (("--threads", "0"), USAGE, ""),
            (("--threads", "100000"), USAGE, ""),
            (("--device", "tpux"), ERROR, "not known"),
            (("--device", "meta"), ERROR, "cannot be measured"),
            (("--device", "cuda:99"), ERROR, "CUDA device"),
            (("--precision", "tf32"), ERROR, "tf32 needs a CUDA device"),
            (("--attention", "eager"), ERROR, "cannot be chosen"),
            (("-o", "m.jsonl.gz"), ERROR, "compressed"),
        )
    ],
    ((*MEASURE, "-o", "net.py"), ERROR, "net.py is no records file"),
    ((*CHECK, "-o", "net.py"), ERROR, "net.py is no records file"),
    ((*MEASURE, "-o", "folder.py"), ERROR, "folder.py: Is a directory"),
    ((*MEASURE, "--minutes", "3"), USAGE, ""),
    *[
        (("measure", "--sweep", "small", "-o", "m.jsonl", "--minutes", minutes), USAGE, "")
        for minutes in ("-1", "0", "nan", "soon")
    ],
    (("measure", "net.py:exits", "--device", "cpu"), ERROR, "net.py:exits stopped"),
    (("measure",), USAGE, ""),
    (("measure", "--sweep", "none"), USAGE, ""),
    (("measure", "net:mlpp", "--device", "cpu"), ERROR, "Did you mean 'net:mlp'"),
    (("measure", "layer:conv?kernel=0", "--device", "cpu"), ERROR, "layer:conv"),
    (("measure", "layer:conv?stride=-1", "--device", "cpu"), ERROR, "negative"),
    (("measure", "missing.json", "--device", "cpu"), ERROR, "missing.json"),
    (("measure", "net.py:wrong_shape", "--device", "cpu"), ERROR, "net.py"),
    (("measure", "--sweep", "none", "-o", "m.jsonl", "--device", "cpu"), ERROR, "no sweep 'none'"),
    (("calibrate", "missing.jsonl", "-o", "c.json"), ERROR, "no records file"),
    (("calibrate", "list.json", "-o", "c.json"), ERROR, "list.json"),
    (("calibrate", "empty.json", "-o", "c.json"), ERROR, "no measured time"),
    (("calibrate", "missing.jsonl"), USAGE, ""),
    # train, evaluate, data
    (("train", "missing.toml", "-o", "w"), ERROR, "missing.toml"),
    (("train", "net.py", "-o", "w"), ERROR, "net.py"),
    (("train", "-o", "w", "--set", "epochs"), ERROR, "no change"),
    (("train", "-o", "w", "--set", "train.epochz=3"), ERROR, "epochz"),
    (("train", "-o", "w"), ERROR, "no folder with measured data"),
    (("train", "-o", "w", "--data", "missing"), ERROR, "does not exist"),
    (("train", "-o", "w", "--data", "weights"), ERROR, "has no measurements.csv.gz"),
    *[
        (("train", "-o", "w", "--data", "weights", "--set", change), ERROR, says)
        for change, says in (
            ("train.learning_rate=nan", "at least"),
            ("train.learning_rate=inf", "at most"),
            ("train.epochs=0", "at least 1"),
            ("train.epochs=1.5", "a whole number"),
            ("train.epochs=true", "a whole number"),
            ("train.optimizer=x", "Allowed: adamw, muon"),
            ("model.encoder.hidden=-1", "at least 1"),
            ("train=1", "a table of settings"),
            ("a.b.c=1", "unknown settings: a"),
        )
    ],
    (("train", "-o", "w", "--set", "members=2", "--set", "members.x=1"), ERROR, "is no table"),
    (("train", "-o", "w", "--seed", "-1", "--data", "weights"), ERROR, "train.seed must be"),
    (("train", "-o", "net.py", "--data", "weights"), ERROR, "'net.py' is a file"),
    (("train", "latin.toml", "-o", "w"), ERROR, "'latin.toml' is no TOML"),
    *[
        (("tune", "-o", "t", *words), ERROR, says)
        for words, says in (
            (("--trials", "0"), "trials must be"),
            (("--workers", "0"), "workers must be"),
            (("--rows", "0"), "rows must be between 2"),
            (("--fold", "9"), "fold must be between 0 and 4"),
            (("--seed", "-1"), "seed must be between 0"),
            (("--epochs", "0"), "epochs must be"),
            (("--pruner", "x"), "Allowed: median"),
            (("--set", "x"), "is no change"),
            (("--storage", "x"), "no folder with measured data"),
            ((), "no folder with measured data"),
            (("--data", "weights"), "has no measurements.csv.gz"),
        )
    ],
    (("tune",), USAGE, ""),
    (("tune", "missing.toml", "-o", "t"), ERROR, "missing.toml"),
    (("evaluate", "--config", "missing.toml"), ERROR, "are for --fold"),
    (("evaluate", "--seed", "3"), ERROR, "are for --fold"),
    (("evaluate", "--set", "train.epochs=1"), ERROR, "are for --fold"),
    (("evaluate", "missing.jsonl"), ERROR, "missing.jsonl"),
    (("evaluate", "--fold", "9"), USAGE, ""),
    (("evaluate", "--weights", "missing"), ERROR, "missing"),
    (("data",), USAGE, ""),
    (("data", "check"), ERROR, "no folder with measured data"),
    (("data", "check", "--data", "missing"), ERROR, "does not exist"),
    (("data", "cache", "--data", "missing"), ERROR, "does not exist"),
    (("data", "cache", "--workers", "-1"), USAGE, ""),
    # anything else
    (("predct", "x"), USAGE, ""),
    (("trace", "net.py:net", "--no-such-option"), USAGE, ""),
    (("trace", "net.py:net", "--json=yes"), USAGE, ""),
    (("trace", "net\0.py:net"), ERROR, ""),
    (("trace", "n" * 5000 + ".py:net"), ERROR, ""),
    (("trace", "net.py:" + "é" * 50), ERROR, ""),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("lab"))


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if "pycache" not in str(p)}


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 130
    assert len({words for words, _, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("words", "status", "says"), CASES, ids=[" ".join(words)[:60] for words, _, _ in CASES]
)
def test_bad_words(
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    says: str,
) -> None:
    monkeypatch.chdir(lab)
    monkeypatch.delenv("PRENET_DATA", raising=False)
    before = _files(lab)
    found = main(list(words))
    output, error = capsys.readouterr()
    assert (found, "Traceback" in output + error) == (status, False), error
    assert _files(lab) == before
    if status == ERROR:
        assert output == ""
        lines = [line for line in error.splitlines() if not line.startswith("warning: ")]
        assert len(lines) == 1, error
        assert lines[0].startswith("prenet: ") and "internal error" not in lines[0]
        assert says in lines[0]
