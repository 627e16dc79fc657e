"""What can be said about the paper's tables without a model: `python -m eval.paper_check`.

Averages against their rows, bold marks against the best values, the text's numbers against the tables'. Every
comparison is of decimals as printed; a number agrees if rounding the unrounded result could give it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from echokv.installed import called
from eval.console.errors import Parser, command
from eval.tables import paper
from eval.tables.paper import Claim


@dataclass(frozen=True)
class Finding:
    """One check: what was compared, and how it failed ("" if it holds)."""

    what: str
    failure: str


def averages(cells: Mapping[str, Decimal]) -> Iterator[Finding]:
    """Compare the printed averages of Tables 3, 4 and 6 with the means of their rows or columns."""
    for table in (3, 4):
        for row in _rows(cells, table):
            values = [cells[f"{table}:{row}:{column}"] for column in _columns(cells, table) if column != "average"]
            yield _average(f"Table {table}, {row}, average", cells[f"{table}:{row}:average"], values)
    for column in _columns(cells, 6):
        values = [cells[f"6:{row}:{column}"] for row in _rows(cells, 6) if row != "average"]
        yield _average(f"Table 6, {column}, average", cells[f"6:average:{column}"], values)


def repeated_cells(cells: Mapping[str, Decimal]) -> Iterator[Finding]:
    """Compare the cells of Table 5 that Table 3 prints as well."""
    for address, value in cells.items():
        table, row, column = address.split(":")
        other = f"3:{row}@128:{column}"
        if table == "5" and other in cells:
            failure = "" if cells[other] == value else f"{value} there, {cells[other]} in Table 3"
            yield Finding(f"Table 5, {row}, {column} against Table 3", failure)


def marks(cells: Mapping[str, Decimal], bold: set[str]) -> Iterator[Finding]:
    """Compare the bold marks of Tables 3 to 6 with the best values: all that tie for it and no other."""
    for what, group in _ranked_together(cells).items():
        best = max(cells[address] for address in group)
        expected = {address for address in group if cells[address] == best}
        printed = bold.intersection(group)
        wrong = [f"{_row(one)} ({cells[one]}) is bold, the best is {best}" for one in sorted(printed - expected)]
        wrong += [f"{_row(one)} ({cells[one]}) is best and not bold" for one in sorted(expected - printed)]
        yield Finding(f"{what}, bold", "; ".join(wrong))


def statements(cells: Mapping[str, Decimal], claims: list[Claim]) -> Iterator[Finding]:
    """Compare the numbers and comparisons of the text with the tables."""
    for claim in claims:
        yield Finding(f"section {claim.section}: {claim.claim}".replace("section Table", "Table"), _check(cells, claim))


def report(sections: Mapping[str, list[Finding]]) -> str:
    """Return each kind of check with how many hold, and every one that does not."""
    lines = []
    for title, findings in sections.items():
        failed = [finding for finding in findings if finding.failure]
        lines.append(f"{title}: {len(findings) - len(failed)} of {len(findings)} hold")
        lines += [f"  {finding.what}: {finding.failure}" for finding in failed]
    lines.append("second-best marks: not checked (underlining is not in the text that the marks were read from)")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; the paper's inconsistencies are findings, not errors, so the exit status is 0."""
    parser = Parser(
        prog=called("paper_check"), description="The paper's cells, marks and statements against each other."
    )
    return command(parser, arguments, lambda _: print(_checked()))


def _checked() -> str:
    cells = paper.cells()
    sections = {
        "averages": list(averages(cells)),
        "Table 5 against Table 3": list(repeated_cells(cells)),
        "bold marks": list(marks(cells, paper.bold())),
        "statements of the text": list(statements(cells, paper.claims())),
    }
    return report(sections)


def _check(cells: Mapping[str, Decimal], claim: Claim) -> str:
    value = cells[claim.cell]
    other = cells[claim.other] if claim.other else Decimal(0)
    compare: dict[str, Callable[[], bool]] = {"above": lambda: value > other, "at least": lambda: value >= other}
    if claim.kind in compare:
        return "" if compare[claim.kind]() else f"{claim.cell} is {value}, {claim.other} is {other}"
    results = {
        "value": lambda: value,
        "difference": lambda: value - other,
        "percent": lambda: 100 * (value - other) / other,
    }
    found = results[claim.kind]()
    return "" if _agrees(found, Decimal(claim.printed)) else f"{claim.printed} in the text, the tables give {found:.4g}"


def _average(what: str, printed: Decimal, values: list[Decimal]) -> Finding:
    mean = sum(values, Decimal(0)) / len(values)
    return Finding(what, "" if _agrees(mean, printed) else f"printed {printed}, the mean is {mean:.4f}")


def _agrees(value: Decimal, printed: Decimal) -> bool:
    """Whether `value` may be printed so; a tie may be rounded either way."""
    unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    return abs(value - printed) <= unit / 2


def _ranked_together(cells: Mapping[str, Decimal]) -> dict[str, list[str]]:
    """Group the addresses that a bold mark chooses from, as the captions say."""
    groups: dict[str, list[str]] = {}
    for address in cells:
        table, row, column = address.split(":")
        method, _, budget = row.partition("@")
        if table in ("3", "4") and method != "full":
            groups.setdefault(f"Table {table}, B={budget}, {column}", []).append(address)
        if table == "5":
            groups.setdefault(f"Table 5, {column}", []).append(address)
        if table == "6":
            groups.setdefault(f"Table 6, {row}", []).append(address)
    return groups


def _row(address: str) -> str:
    table, row, column = address.split(":")
    return column if table == "6" else row


def _rows(cells: Mapping[str, Decimal], table: int) -> list[str]:
    return list(dict.fromkeys(address.split(":")[1] for address in cells if address.startswith(f"{table}:")))


def _columns(cells: Mapping[str, Decimal], table: int) -> list[str]:
    return list(dict.fromkeys(address.split(":")[2] for address in cells if address.startswith(f"{table}:")))


if __name__ == "__main__":
    sys.exit(main())
