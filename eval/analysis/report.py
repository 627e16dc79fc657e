"""How an analysis is written down: tidy CSV, a table in LaTeX and in Markdown, and the same as text."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from eval.console.errors import UserError
from eval.scoring import statistics
from eval.tables import naming
from eval.tables.latex import escape

_TITLES = {"stage1_only": "EchoKV, frozen"}  # what the row is in these comparisons
EXAMPLE = ["dataset", "_id"]  # the same `_id` may stand in two tasks
# Environment, type and points of a character, a column gap and a line of the usual two-column page.
_FORMS = (
    ("table", r"\small", 4.4, 6, 220),
    ("table*", r"\small", 4.4, 6, 455),
    ("table*", r"\scriptsize", 3.7, 3, 455),
)


def title(method: str) -> str:
    """Name a method for a reader."""
    return _TITLES.get(method) or naming.title(method)


def words(setting: object) -> str:
    """A setting's value for a reader: kv_head as KV head."""
    return str(setting).replace("_", " ").replace("kv head", "KV head")


def rounded(values: Iterable[float]) -> list[float]:
    """Six decimals: enough for means of shares, half the size on disk."""
    return [round(float(value), 6) for value in values]


def count(rows: pd.DataFrame) -> int:
    """The number of examples that the lines are of."""
    return len(rows[EXAMPLE].drop_duplicates())


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


def number(mean: float, error: float, decimals: int, sign: str = "") -> str:
    """A mean with its standard error, as 0.812 ± 0.004; the error is left out where one value cannot tell.

    sign: "+" also writes the sign of what is above 0, as for differences.
    """
    text = f"{mean:{sign}.{decimals}f}"
    return text if math.isnan(error) else f"{text} ± {error:.{decimals}f}"


def write(folder: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    """Write each frame as NAME.csv.

    Raises UserError if the folder cannot be written to.
    """
    for stem, frame in frames.items():
        _put(folder / f"{stem}.csv", frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


def publish(folder: Path, name: str, table: pd.DataFrame, caption: str, notes: Sequence[str] = ()) -> None:
    """Write the table as NAME.tex and NAME.md, print it with its notes, and say where everything lies."""
    _put(folder / f"{name}.tex", latex(table, caption, name, notes))
    _put(folder / f"{name}.md", markdown(table, caption, notes))
    print(f"\n{caption}\n\n{table.to_string(index=False)}\n")
    for note in notes:
        print(note)
    print(f"written to {folder}", file=sys.stderr)


def latex(table: pd.DataFrame, caption: str, name: str, notes: Sequence[str] = ()) -> str:
    r"""Return a `table` environment, `table*` for a wide one; the document needs `\usepackage{booktabs}`."""
    environment, size, gap = _form(table)
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{{environment}}}",
        rf"\centering{size}\setlength{{\tabcolsep}}{{{gap}pt}}",
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
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def _form(table: pd.DataFrame) -> tuple[str, str, int]:
    """The first environment, type and column gap in which the table fits its line, by a rough count; else the last."""
    rows = [tuple(map(str, table.columns)), *table.itertuples(index=False)]
    characters = sum(max(map(len, column)) for column in zip(*rows, strict=True))
    fitting = [form for form in _FORMS if form[2] * characters + 2 * form[3] * table.shape[1] <= form[4]]
    environment, size, _, gap, _ = (*fitting, _FORMS[-1])[0]
    return environment, size, gap


def markdown(table: pd.DataFrame, caption: str, notes: Sequence[str] = ()) -> str:
    """Return the table as GitHub Markdown under its caption."""
    rows = [table.columns, ["---", *["---:"] * (table.shape[1] - 1)], *table.itertuples(index=False)]
    lines = [_marked(caption), "", *(f"| {' | '.join(_marked(str(field)) for field in row)} |" for row in rows)]
    for note in notes:
        lines += ["", _marked(note)]
    return "\n".join(lines) + "\n"


def _marked(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|<])", r"\\\1", " ".join(text.split()))


def _line(fields: Iterable[str]) -> str:
    """One row; a hyphen before a digit is a minus."""
    return " & ".join(re.sub(r"^-(?=\d)", "$-$", escape(field)) for field in fields) + r" \\"


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): choose a writable folder with results=PATH"
        ) from error
