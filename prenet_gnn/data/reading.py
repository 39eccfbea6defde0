"""Reads one CSV table into typed columns and says in which line a value is wrong."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from prenet_gnn.errors import DataError

# The header is line 1 of a file, so the first row of data is line 2.
FIRST_LINE = 2
TRUTH = {"True": True, "False": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One value of a table that cannot be right.

    Attributes:
        file: Name of the table.
        row: Line in the file, the header being line 1; 0 means the file as a whole.
        column: Column of the value, or columns joined by `+`.
        problem: What is wrong with it.
    """

    file: str
    row: int
    column: str
    problem: str

    def __str__(self) -> str:
        """The problem in one line."""
        place = f"{self.file} line {self.row}" if self.row else self.file
        return (
            f"{place}, {self.column}: {self.problem}" if self.column else f"{place}: {self.problem}"
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Limits within which a number of a table is believable; outside, the unit is likely wrong."""

    low: float
    high: float
    required: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of one kind of table.

    Attributes:
        text: Columns that must hold text in every row.
        optional_text: Columns that may be empty.
        numbers: Numeric columns with their believable limits.
        bools: True/False columns; those in `optional_bools` may be empty.
        optional_bools: True/False columns that may be empty.
        optional: Columns that a file may lack altogether.
    """

    text: tuple[str, ...]
    optional_text: tuple[str, ...]
    numbers: dict[str, Range]
    bools: tuple[str, ...] = ()
    optional_bools: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the table."""
        return (*self.text, *self.optional_text, *self.numbers, *self.bools, *self.optional_bools)


def read_csv(path: Path) -> pd.DataFrame:
    """Reads a CSV or CSV.gz file as it is.

    Raises:
        DataError: The file is missing, cut off, not gzip, not CSV or not text.
    """
    if not path.is_file():
        raise DataError(f"{path} is missing. Get the collection with `prenet data fetch`.")
    try:
        return pd.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        line = _last_good_line(path)
        raise DataError(f"{path} is damaged after line {line} ({error}). Fetch it again.") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty. Fetch it again with `prenet data fetch`.") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable CSV table: {_one_line(error)}.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {_one_line(error)}.") from None


def read_table(path: Path, schema: Schema) -> tuple[pd.DataFrame, list[RowProblem]]:
    """Reads a table and converts its columns to their types.

    Returns:
        The typed table (wrong values are NaN, or empty text) and every problem found.

    Raises:
        DataError: The file cannot be read or lacks a column.
    """
    raw = read_csv(path)
    missing = [c for c in schema.columns if c not in raw.columns and c not in schema.optional]
    if missing:
        raise DataError(
            f"{path} line 1 lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}. "
            "Fetch it again with `prenet data fetch`."
        )
    columns: dict[str, pd.Series] = {}
    problems: list[RowProblem] = []
    for name in schema.columns:
        values = raw[name] if name in raw.columns else pd.Series(np.nan, index=raw.index)
        column, found = _typed(name, values, schema)
        columns[name] = column
        problems += [RowProblem(path.name, line, name, what) for line, what in found]
    return pd.DataFrame(columns, index=raw.index), problems


def lines(mask: pd.Series | np.ndarray) -> list[int]:
    """File lines of the rows in which `mask` is true."""
    return [int(i) + FIRST_LINE for i in np.flatnonzero(np.asarray(mask, dtype=bool))]


def raise_first(problems: Iterable[RowProblem], path: Path) -> None:
    """Raises a `DataError` for the first problem, saying how many there are."""
    found = list(problems)
    if found:
        more = f" ({len(found) - 1} more: `prenet data check` lists them)" if found[1:] else ""
        raise DataError(f"{path.parent}/{found[0]}{more}")


def _typed(name: str, values: pd.Series, schema: Schema) -> tuple[pd.Series, list[tuple[int, str]]]:
    if name in schema.numbers:
        return _numbers(values, schema.numbers[name])
    if name in schema.bools or name in schema.optional_bools:
        return _bools(values, required=name in schema.bools)
    empty = values.isna()
    found = [(line, "is empty") for line in lines(empty)] if name in schema.text else []
    return values.astype("object").where(~empty, "").astype(str), found


def _numbers(values: pd.Series, limits: Range) -> tuple[pd.Series, list[tuple[int, str]]]:
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    given = values.notna()
    found = [
        (line, f"'{values.iloc[line - FIRST_LINE]}' is not a number")
        for line in lines(given & numbers.isna())
    ]
    if limits.required:
        found += [(line, "is empty") for line in lines(~given)]
    outside = given & numbers.notna() & ~numbers.between(limits.low, limits.high)
    allowed = f"is outside {limits.low:g} to {limits.high:g}; check the unit"
    found += [(n, f"{numbers.iloc[n - FIRST_LINE]:g} {allowed}") for n in lines(outside)]
    if limits.whole:
        broken = numbers.notna() & np.isfinite(numbers) & (numbers % 1 != 0)
        found += [
            (n, f"{numbers.iloc[n - FIRST_LINE]:g} is not a whole number") for n in lines(broken)
        ]
    return numbers, found


def _bools(values: pd.Series, *, required: bool) -> tuple[pd.Series, list[tuple[int, str]]]:
    if values.dtype == bool:
        return values, []
    truth = values.astype("object").map(lambda v: TRUTH.get(str(v)) if pd.notna(v) else None)
    wrong = values.notna() & truth.isna()
    found = [
        (line, f"'{values.iloc[line - FIRST_LINE]}' is neither True nor False")
        for line in lines(wrong)
    ]
    if required:
        found += [(line, "is empty") for line in lines(values.isna())]
    return truth.astype("boolean"), found


def _last_good_line(path: Path) -> int:
    """Counts the lines that can be unpacked before a damaged gzip file breaks."""
    count = 0
    try:
        with gzip.open(path, "rb") as file:
            for _ in file:
                count += 1
    except (OSError, EOFError, zlib.error):
        pass
    return count


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
