"""Nothing that the packages read can run code, and nothing leaves the machine unasked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tracing", "prenet_gnn", "experiments")
# Modules that read code from data.
UNSAFE_MODULES = set("pickle cPickle _pickle dill cloudpickle joblib shelve marshal".split())
# Reading functions that unpickle unless they are told not to, and how they are told.
GUARDS = {
    "torch.load": ("weights_only", True),
    "fabric.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
UNSAFE_CALLS = {"pd.read_pickle", "pandas.read_pickle", "yaml.load", "os.system", "eval", "exec"}
# `exec_module` runs the file that the user named as `file.py:factory`; nothing else runs files.
RUNS_FILES = {"tracing/zoo/user_file.py"}
# The one module that talks to the network.
NETWORK = {"urllib.request", "http.client", "requests", "httpx", "ftplib", "huggingface_hub"}
USES_NETWORK = {"prenet_gnn/data/fetch.py"}


def problems(tree: ast.AST) -> Iterator[str]:
    """What in a file could run code that data brings along."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if top(alias.name) in UNSAFE_MODULES)
        elif isinstance(node, ast.ImportFrom) and top(node.module or "") in UNSAFE_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in UNSAFE_CALLS:
                yield name
            if name in GUARDS and not is_guarded(node, *GUARDS[name]):
                yield f"{name} without {GUARDS[name][0]}={GUARDS[name][1]}"
            if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords):
                yield f"{name} with a shell"
            if any(k.arg == "trust_remote_code" for k in node.keywords):
                yield f"{name} with code from a download"


def is_guarded(call: ast.Call, name: str, value: bool) -> bool:
    return any(
        k.arg == name and isinstance(k.value, ast.Constant) and k.value.value is value
        for k in call.keywords
    )


def top(module: str) -> str:
    return module.partition(".")[0]


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(found) > 100
    return found


def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_nothing_is_unpickled() -> None:
    wrong = {str(p.relative_to(ROOT)): found for p in files() if (found := [*problems(parsed(p))])}
    assert not wrong


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import joblib.numpy_pickle",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "np.load(path)",
        "fabric.load(path, state)",
        "pd.read_pickle(path)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
        "AutoModel.from_config(c, trust_remote_code=True)",
    ],
)
def test_the_check_sees_what_it_looks_for(code: str) -> None:
    assert [*problems(ast.parse(code))]


def test_the_check_lets_guarded_calls_pass() -> None:
    code = "np.load(p, allow_pickle=False); torch.load(p, weights_only=True); json.loads(t)"
    assert not [*problems(ast.parse(code))]


def test_files_run_in_one_place_only() -> None:
    found = {
        str(p.relative_to(ROOT))
        for p in files()
        if any(
            isinstance(n, ast.Attribute) and n.attr in {"exec_module", "run_path", "load_module"}
            for n in ast.walk(parsed(p))
        )
    }
    assert found == RUNS_FILES


def test_one_module_of_the_packages_talks_to_the_network() -> None:
    found = set()
    for path in files():
        names = {
            name
            for node in ast.walk(parsed(path))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
        }
        if NETWORK & names:
            found.add(str(path.relative_to(ROOT)))
    assert {name for name in found if not name.startswith("experiments/")} == USES_NETWORK
