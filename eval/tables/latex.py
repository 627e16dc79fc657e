"""Tables for pdflatex with booktabs and multirow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eval.tables.layout import Entry, Row, Table

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    "[": "{[}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}", "±": r"$\pm$",
}  # fmt: skip


def escape(text: str) -> str:
    """Return text that pdflatex prints as it is; what a plain installation cannot print becomes its code point."""
    return "".join(_character(char) for char in " ".join(text.split()))


def render(table: Table) -> str:
    r"""Return a `table*` environment; the document needs `\usepackage{booktabs,multirow}`."""
    lines = [
        r"% \usepackage{booktabs,multirow}; 16 tasks need a line of 17.5 cm",
        r"\begin{table*}",
        r"\centering\scriptsize",
        r"\setlength{\tabcolsep}{1.5pt}",
        rf"\begin{{tabular}}{{@{{}}lr{'r' * len(table.columns)}@{{}}}}",
        r"\toprule",
        *_header(table),
    ]
    for block in table.blocks:
        lines += [r"\midrule", *(line for row in block for line in _row(row))]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {escape(note)}}}" for note in table.notes]
    lines += [rf"\caption{{{escape(table.caption)}}}", rf"\label{{tab:{table.name}}}", r"\end{table*}"]
    return "\n".join(lines) + "\n"


def _header(table: Table) -> Iterator[str]:
    """The groups over their columns; the first two columns and the average span both lines."""
    spans, rules, place = [], [], 3
    for title, width in table.groups:
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(title)}}}")
        rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        place += width
    yield _line([_tall("Method"), _tall("Budget"), *spans, _tall(table.columns[-1])])
    yield "".join(rules)
    yield _line(["", "", *map(escape, table.columns[:-1]), ""])


def _row(row: Row) -> Iterator[str]:
    """The scores and, under them, what is known of their standard errors."""
    yield _line([escape(row.title), row.budget, *map(_entry, row.entries)])
    if any(entry.error for entry in row.entries):
        errors = [rf"{{\tiny$\pm${entry.error}}}" if entry.error else "" for entry in row.entries]
        yield _line(["", "", *errors]) + "[1pt]"


def _entry(entry: Entry) -> str:
    return {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}[entry.place].format(entry.text)


def _tall(title: str) -> str:
    return rf"\multirow{{2}}{{*}}{{{escape(title)}}}"


def _line(fields: Sequence[str]) -> str:
    return " & ".join(fields) + r" \\"


def _character(char: str) -> str:
    if char in _SPECIAL:
        return _SPECIAL[char]
    return char if char.isascii() and char.isprintable() else f"{{[}}U+{ord(char):04X}]"
