"""How an analysis is written down: tidy CSV, a LaTeX table, and the same as text."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from eval import layout, statistics
from eval.errors import UserError
from eval.latex import escape

_TITLES = {"stage1_only": "EchoKV, frozen"}  # what the row is in these comparisons


def title(method: str) -> str:
    """Name a method for a reader."""
    return _TITLES.get(method) or layout.title(method)


def rounded(values: Iterable[float]) -> list[float]:
    """Six decimals: enough for means of shares, half the size on disk."""
    return [round(float(value), 6) for value in values]


def summarise(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Mean of `value` over the lines of each group, with standard error, 95% bootstrap interval and n.

    The lines of a group must be of different examples.
    """
    lines = []
    for key, part in frame.dropna(subset=[value]).groupby(list(by), sort=False, dropna=False):
        found = statistics.estimate([part[value].to_numpy(dtype="float64")])
        about = dict(zip(by, key, strict=True))
        about |= {"mean": found.mean, "error": found.error, "low": found.low, "high": found.high, "n": len(part)}
        lines.append(about)
    return pd.DataFrame(lines, columns=[*by, "mean", "error", "low", "high", "n"])


def number(mean: float, error: float, decimals: int) -> str:
    """A mean with its standard error, as 0.812 ± 0.004; the error is left out where one value cannot tell."""
    text = f"{mean:.{decimals}f}"
    return text if math.isnan(error) else f"{text} ± {error:.{decimals}f}"


def write(folder: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    """Write each frame as NAME.csv.

    Raises UserError if the folder cannot be written to.
    """
    for stem, frame in frames.items():
        _put(folder / f"{stem}.csv", frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


def publish(folder: Path, name: str, table: pd.DataFrame, caption: str, notes: Sequence[str] = ()) -> None:
    """Write the table as NAME.tex, print it with its notes, and say where everything lies."""
    _put(folder / f"{name}.tex", latex(table, caption, name, notes))
    print(f"\n{caption}\n\n{table.to_string(index=False)}\n")
    for note in notes:
        print(note)
    print(f"written to {folder}", file=sys.stderr)


def latex(table: pd.DataFrame, caption: str, name: str, notes: Sequence[str] = ()) -> str:
    r"""Return a `table` environment; the document needs `\usepackage{booktabs}`."""
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering\small",
        rf"\begin{{tabular}}{{@{{}}l{'r' * (table.shape[1] - 1)}@{{}}}}",
        r"\toprule",
        _line(map(str, table.columns)),
        r"\midrule",
        *(_line(map(str, row)) for row in table.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {escape(note)}}}" for note in notes),
        rf"\caption{{{escape(caption)}}}",
        rf"\label{{tab:{name}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(fields: Iterable[str]) -> str:
    return " & ".join(escape(field) for field in fields) + r" \\"


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): choose a writable folder with results=PATH"
        ) from error
