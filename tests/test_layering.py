"""Imports go one way, and no file outgrows a reader."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE = 300
LONGEST_TEST = 350
# More than this many parameters are a frozen dataclass that nobody has written yet.
MOST_PARAMETERS = 7
MAY_NOT_IMPORT = {
    "tracing": {"prenet_gnn", "experiments", "torch_geometric", "optuna", "lightning"},
    "prenet_gnn": {"experiments"},
}
# Rooms of every package: a file imports its own room and those before it.
ORDER = {
    "tracing": "errors graph costs views op_graph capture zoo",
    "prenet_gnn": "errors common catalogue workload encoding network memory predictor planning "
    "reporting data training evaluation tuning measuring cli __main__",
}
# Loading these takes seconds, so a module that the command line loads at its start may not.
HEAVY = {
    "lightning",
    "numpy",
    "optuna",
    "pandas",
    "plotly",
    "sklearn",
    "timm",
    "torch",
    "torch_geometric",
    "torchvision",
    "tracing",
    "transformers",
    "xgboost",
}


def imported(path: Path, *, anywhere: bool = True) -> set[str]:
    """Top-level packages that a file imports, in functions too unless told otherwise."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree)) if anywhere else tree.body
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def files_of(package: str) -> dict[str, Path]:
    """The files of a package by the name under which they are imported."""
    files = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def arrows(files: dict[str, Path]) -> dict[str, set[str]]:
    """Which of the files each file imports, in functions and for type checkers too."""
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= (whole & set(files)) or {node.module}
        found[name] = (targets & set(files)) - {name}
    return found


@pytest.mark.parametrize("package", [*ORDER, "experiments"])
def test_no_import_circles(package):
    try:
        TopologicalSorter(arrows(files_of(package))).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("package", ORDER)
def test_rooms_import_rooms_before_them(package):
    places = {name: place for place, name in enumerate(ORDER[package].split())}
    found = arrows(files_of(package))
    rooms = {name: name.split(".")[1] for name in found if name != package}
    assert set(rooms.values()) == set(places)
    assert not [
        f"{name} imports {target}"
        for name, room in rooms.items()
        for target in found[name]
        if target == package or places[rooms[target]] > places[room]
    ]


def test_the_check_sees_circles_and_hidden_imports(tmp_path):
    texts = {
        "p.a": "def f():\n    from p import b\n",
        "p.b": "if TYPE_CHECKING:\n    from p.a import f\n",
    }
    files = {name: tmp_path / f"{name}.py" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    assert arrows(files) == {"p.a": {"p.b"}, "p.b": {"p.a"}}


@pytest.mark.parametrize("package", MAY_NOT_IMPORT)
def test_packages_import_one_way(package):
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    wrong = {
        str(path.relative_to(ROOT)): both
        for path in paths
        if (both := MAY_NOT_IMPORT[package] & imported(path))
    }
    assert not wrong


def test_the_check_sees_imports_inside_functions(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from experiments.tables import main\n    import torch.nn\n")
    assert imported(path) == {"experiments", "torch"}
    assert imported(path, anywhere=False) == set()


def test_the_command_line_loads_nothing_heavy_at_its_start():
    files = [*(ROOT / "prenet_gnn" / "cli").glob("*.py")]
    files += [
        ROOT / "prenet_gnn" / f"{name}.py"
        for name in ("__init__", "errors", "workload/__init__", "workload/workload")
    ]
    assert len(files) > 5
    wrong = {path.name: both for path in files if (both := HEAVY & imported(path, anywhere=False))}
    assert not wrong


@pytest.mark.parametrize("folder", ["tracing", "prenet_gnn", "experiments", "tests"])
def test_files_stay_readable(folder):
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    longest = LONGEST_TEST if folder == "tests" else LONGEST_FILE
    assert not {name: length for name, length in lengths.items() if length > longest}


def definitions(package: str) -> Iterator[tuple[str, ast.AST]]:
    """Everything in a package's files, with where it is."""
    for name, path in files_of(package).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{name}: {getattr(node, 'name', '')}", node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names that a caller gives."""
    a = function.args
    names = [each.arg for each in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_functions_take_few_parameters():
    wrong = {
        where: names
        for where, node in definitions("prenet_gnn")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len(names := parameters(node)) > MOST_PARAMETERS
    }
    assert not wrong


def test_parameters_are_counted_without_self():
    (function,) = ast.parse("def f(self, a, /, b, *, c, **d): pass").body
    assert isinstance(function, ast.FunctionDef)
    assert parameters(function) == ["a", "b", "c"]


@pytest.mark.parametrize("package", ["tracing", "prenet_gnn", "experiments"])
def test_no_class_passes_unknown_attributes_on(package):
    assert not [
        where
        for where, node in definitions(package)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(m, ast.FunctionDef) and m.name == "__getattr__" for m in node.body)
    ]


def test_every_module_says_its_idea():
    for package in MAY_NOT_IMPORT:
        for path in (ROOT / package).rglob("*.py"):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
