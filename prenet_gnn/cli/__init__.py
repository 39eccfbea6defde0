"""The command `prenet`: one-line errors and exit statuses; the commands live in their own files."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

EXIT_USER_ERROR = 1
EXIT_INTERRUPTED = 130

# Import names of packages that come with an extra; the message then names the extra.
_EXTRA_OF = {
    "timm": "zoo",
    "torchvision": "zoo",
    "transformers": "zoo",
    "lightning": "train",
    "pandas": "train",
    "pyarrow": "train",
    "plotly": "report",
    "sklearn": "train",
    "xgboost": "train",
    "cpuinfo": "train",
    "pynvml": "train",
    "psycopg": "postgres",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `prenet` and gives its exit status: 0 done, 1 user error, 2 usage, 130 interrupted.

    Args:
        arguments: Words after the command name; those of the process if None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with warnings.catch_warnings():
            _quieten()
            from prenet_gnn.cli.app import app

            app(args=words, prog_name="prenet")
    except SystemExit as stop:
        status = _status(stop.code)
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except Exception as error:
        if debug:
            raise
        print(f"prenet: {_line(error)}", file=sys.stderr)
        return EXIT_USER_ERROR
    else:
        status = 0
    # typer swallows the interrupt of a command and only passes its status on
    if status == EXIT_INTERRUPTED:
        print("prenet: interrupted", file=sys.stderr)
    return status


def _quieten() -> None:
    """Prints warnings as one line, and none that only concern the authors of libraries."""
    for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    handler: Any = show  # releases of the type stubs differ in what they take
    warnings.showwarning = handler


def _status(code: object) -> int:
    return code if isinstance(code, int) else 0 if code is None else EXIT_USER_ERROR


def _line(error: Exception) -> str:
    """Says in one line what went wrong and what to do next."""
    text = " ".join(str(error).split())
    if _is_user_error(error):
        return text
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        extra = _EXTRA_OF.get(package)
        how = f"pip install 'prenet-gnn[{extra}]'" if extra else f"pip install {package}"
        return f"this needs the package '{package}', which is not installed: {how}"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or text}"
    name = type(error).__name__
    return f"internal error ({name}: {text[:300]}); run again with --debug to see where"


def _is_user_error(error: Exception) -> bool:
    from prenet_gnn.errors import PreNetError

    if isinstance(error, PreNetError):
        return True
    # An error of the tracer can only come from a tracer that is loaded; loading it here would
    # cost a second for every other message.
    tracing = sys.modules.get("tracing")
    return tracing is not None and isinstance(error, tracing.TraceError)
