"""Runs README's Python example and writes down what it prints.

python -m experiments.readme
"""

from __future__ import annotations

import subprocess
import sys

from experiments.shared.command import Options, command
from experiments.shared.markdown import code_block, fill_output


@command()
def main(_: Options) -> None:
    """Runs the example."""
    code = code_block("example:python")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    fill_output("example:output", done.stdout)
    print(done.stdout, end="")


if __name__ == "__main__":
    main()
