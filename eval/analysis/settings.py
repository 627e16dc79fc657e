"""The settings of each kind of analysis, typed: the section `analysis` of an experiment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from eval.console.errors import UserError, nearest
from eval.console.fields import Section, Texts, as_tuple, checked

Step = Annotated[int, Field(ge=1)]


class Analysis(Section):
    """name: what its files are named by. kind: which analysis it is."""

    name: str = Field(min_length=1, description="the experiment's own name")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _different(value: Any) -> Any:
    if not isinstance(value, list) or len(set(map(str, value))) != len(value):
        raise ValueError("not a list of different numbers")
    return tuple(sorted(value)) if all(isinstance(one, int | float) for one in value) else tuple(value)


class Overlap(Analysis):
    """shown: columns of the table; every step is measured."""

    kind: Literal["table1"]
    shown: Annotated[tuple[Step, ...], BeforeValidator(_tuple)] = Field(
        min_length=1, description="a list of steps from 1 on, such as [1,3,6,8]"
    )


class Positions(Analysis):
    """step: at which queries are compared. layers: rows of the table, None for five of them."""

    kind: Literal["table2"]
    step: int = Field(ge=3, description="a whole number from 3 on: two steps draw the line to it")
    layers: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] | None = Field(
        description="a layer from 0 on, a list of them, or null"
    )


class Retention(Analysis):
    """stand_in: subsets without annotated evidence, of which it is where an answer string stands in the context."""

    kind: Literal["table6"]
    stand_in: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(description="a list of subsets, or []")


class Outcomes(Analysis):
    """steps: true queries that a choice is held against."""

    steps: int = Field(ge=1, description="the number of true queries, at least 1")


class Ablation(Outcomes):
    """label: of the x axis. x: the field that is varied, None where methods are. against: what they are held against.

    workspace: what the experiment's methods refer to.
    """

    kind: Literal["ablation"]
    label: str = Field(min_length=1, description="the words for what is varied")
    x: str | None = Field(min_length=1, description="the field of the methods that is varied, or null")
    against: Texts = Field(description="a method, or a list of them")
    workspace: int | None = Field(None, ge=1, description="a whole number of tokens, at least 1")


class Forensics(Outcomes):
    """row: a printed row of Tables 3 to 5."""

    kind: Literal["forensics"]
    row: str = Field(description="a printed row as TABLE:METHOD@BUDGET, such as 3:laq@128")


class Dispersion(Outcomes):
    """dispersions, facts: the levels, ascending. compare: two methods, whose difference is the claim."""

    kind: Literal["dispersion"]
    dispersions: Annotated[tuple[float, ...], BeforeValidator(_different)] = Field(
        min_length=2, description="a list of different numbers; two at least make a comparison, such as [0,1]"
    )
    facts: Annotated[tuple[int, ...], BeforeValidator(_different)] = Field(
        min_length=1, description="a list of different numbers, such as [2,4,8]"
    )
    compare: Annotated[tuple[str, str], BeforeValidator(_tuple)] = Field(
        description="two methods, such as [echokv,laq]"
    )


class Heads(Analysis):
    """lengths: prompt tokens of the records, ascending."""

    kind: Literal["heads"]
    lengths: Annotated[tuple[int, ...], BeforeValidator(_different)] = Field(
        min_length=1, description="a list of different numbers of prompt tokens, such as [512,1024]"
    )


class Calibrate(Analysis):
    """What is measured, of how much text, and which numbers are left out.

    sequences, length: so many, of so many tokens. share: of a channel's numbers that lie within its range.
    sinks: first tokens of each sequence, left out. bits: of the codes that points are found for.
    """

    kind: Literal["calibrate"]
    sequences: int = Field(ge=1, description="a whole number of sequences, at least 1")
    length: int = Field(ge=16, description="a whole number of tokens, at least 16")
    share: float = Field(ge=0.5, le=1, description="a number from 0.5 to 1")
    sinks: int = Field(ge=0, le=8, description="a whole number of tokens from 0 to 8")
    bits: Annotated[tuple[Literal[2, 4], ...], BeforeValidator(_different)] = Field(
        min_length=1, description="a list of different numbers of bits, 2 or 4, such as [2,4]"
    )


KINDS: dict[str, type[Analysis]] = {
    "table1": Overlap,
    "table2": Positions,
    "table6": Retention,
    "ablation": Ablation,
    "forensics": Forensics,
    "dispersion": Dispersion,
    "heads": Heads,
    "calibrate": Calibrate,
}


def typed(content: dict[str, Any]) -> Analysis:
    """The settings of an analysis. Raises UserError for an unknown kind, and for wrong settings."""
    kind = str(content.get("kind"))
    if kind not in KINDS:
        raise UserError(f"analysis.kind is {kind!r}{nearest(kind, KINDS)}")
    return checked(KINDS[kind], content, "analysis.")
