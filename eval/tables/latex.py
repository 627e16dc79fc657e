"""Tables for pdflatex with booktabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from eval.tables.layout import Entry, Row, Table

_SMALL = 5  # columns of scores that fit one column of a page of two
_LONG = 56  # lines of rows that fit a page of LaTeX's article beside caption and notes

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    "[": "{[}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}", "±": r"$\pm$",
}  # fmt: skip


def escape(text: str) -> str:
    """Return text that pdflatex prints as it is; what a plain installation cannot print becomes its code point."""
    return "".join(_character(char) for char in " ".join(text.split()))


def render(table: Table) -> str:
    r"""Return a `table` of one column of the page, or a `table*`; the document needs `\usepackage{booktabs}`.

    A table that is too long for a page goes on in further ones of the same number.
    """
    small = len(table.columns) <= _SMALL
    first = r"% \usepackage{booktabs}" + ("" if small else "; 16 tasks need a line of 17.5 cm")
    floats = [_float(page, small, bool(number)) for number, page in enumerate(_pages(table))]
    return "\n".join([first, *floats, *(f"% {escape(line)}" for line in table.details)]) + "\n"


def _pages(table: Table) -> list[Table]:
    """The table cut into parts that fit a page: between two blocks, or within one that fits none."""
    pages: list[list[Row]] = [[]]
    left = _LONG
    for block in table.blocks:
        whole = sum(map(_lines, block))
        for row in block:
            if left < (whole if row is block[0] and whole <= _LONG else _lines(row)):
                pages, left = [*pages, []], _LONG
            pages[-1].append(row)
            left -= _lines(row)
    blocks = ([tuple(same) for _, same in groupby(page, key=lambda row: row.heading)] for page in pages)
    return [replace(table, blocks=tuple(own)) for own in blocks]


def _float(table: Table, small: bool, goes_on: bool) -> str:
    """One float; that which goes on has the number of the one before and only says so."""
    place, gap = ("table", "3pt") if small else ("table*", "1.5pt")
    lines = [
        rf"\begin{{{place}}}",
        r"\centering\scriptsize",
        rf"\setlength{{\tabcolsep}}{{{gap}}}",
        rf"\begin{{tabular}}{{@{{}}l@{{\hspace{{4pt}}}}{'r' * (len(_heads(table)) - 1 + len(table.columns))}@{{}}}}",
        r"\toprule",
        *_header(table),
    ]
    for block in table.blocks:
        lines += [r"\midrule", *_block(block, len(_heads(table)) + len(table.columns), table.by_bytes)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {escape(note)}}}" for note in table.notes]
    if goes_on:
        return "\n".join([*lines, r"\addtocounter{table}{-1}\caption{Continued.}", rf"\end{{{place}}}"])
    lines += [rf"\caption{{{escape(table.caption)}}}", rf"\label{{tab:{table.name}}}", rf"\end{{{place}}}"]
    return "\n".join(lines)


def _lines(row: Row) -> int:
    return 2 if row.variant or any(entry.error for entry in row.entries) else 1


def _header(table: Table) -> Iterator[str]:
    """The groups over their columns, then all titles in one line."""
    heads = _heads(table)
    spans, rules, place = [], [], len(heads) + 1
    for title, width in table.groups:
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(title)}}}")
        rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        place += width
    yield _line([*[""] * len(heads), *spans, ""])
    yield "".join(rules)
    yield _line([*heads, *map(escape, table.columns)])


def _heads(table: Table) -> list[str]:
    """Titles of the columns before the scores; tokens are in a block's heading where these were given."""
    return ["Method", *(["Budget"] if table.by_bytes else []), "KV"]


def _block(block: Sequence[Row], columns: int, by_bytes: bool) -> Iterator[str]:
    """The rows of a block under its heading."""
    if block[0].heading:
        yield rf"\multicolumn{{{columns}}}{{@{{}}l}}{{\textit{{Budget {escape(block[0].heading)}}}}} \\[1pt]"
    for row in block:
        yield from _row(row, by_bytes)


def _row(row: Row, by_bytes: bool) -> Iterator[str]:
    """The scores and, under them, the variant and what is known of their standard errors."""
    costs = [*([row.budget] if by_bytes else []), row.stored]
    yield _line([escape(row.method), *costs, *map(_entry, row.entries)])
    if _lines(row) > 1:
        errors = [rf"{{\tiny$\pm${entry.error}}}" if entry.error else "" for entry in row.entries]
        yield _line([rf"\tiny {escape(row.variant)}" if row.variant else "", *[""] * len(costs), *errors]) + "[1pt]"


def _entry(entry: Entry) -> str:
    return {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}[entry.place].format(entry.text)


def _line(fields: Sequence[str]) -> str:
    return " & ".join(fields) + r" \\"


def _character(char: str) -> str:
    if char in _SPECIAL:
        return _SPECIAL[char]
    return char if char.isascii() and char.isprintable() else f"{{[}}U+{ord(char):04X}]"
