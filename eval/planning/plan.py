"""From typed settings to what will run: a frozen plan, of which each room is handed what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eval.console.errors import UserError
from eval.console.foreign import blamed
from eval.inputs.examples import Data
from eval.inputs.protocol import Protocol
from eval.keeping.store import RunKey, Store
from eval.planning import made_for
from eval.planning.budgets import budgets
from eval.planning.codings import Coding, codings
from eval.planning.data import read
from eval.planning.policies import Given, Policy, policies
from eval.planning.settings import Model, Preset, Settings
from eval.planning.weights import Weights, weights

if TYPE_CHECKING:
    from echokv import Codec, Needs, Press


@dataclass(frozen=True)
class Cell:
    """One row of a table: a method at a budget (None for FullKV), and where its answers are kept.

    variant: what tells it from other rows of the method where fields have several values, such as "steps=4"; before it
        how what is kept is stored, such as "+ KIVI-2". coding: that; None is as it is.
    """

    method: str
    budget: int | None
    policy: Policy | Given
    store: Store
    variant: str = ""
    coding: Coding | None = None

    @property
    def press(self) -> Press:
        return self.policy.press

    @property
    def codec(self) -> Codec | None:
        return self.coding.codec if self.coding else None

    @property
    def row(self) -> str:
        """The method and its variant: cells of one row differ in the budget alone."""
        return f"{self.method} {self.variant}".rstrip()

    @property
    def label(self) -> str:
        return self.row if self.budget is None else f"{self.row} {self.budget}"

    @property
    def fields(self) -> dict[str, Any]:
        """The method's settings."""
        fields: dict[str, Any] = self.store.key.identity["method"]
        return fields


@dataclass(frozen=True)
class Answering:
    """How answers are made.

    rows: at most so many are decoded as one batch; None is all of one example.
    graphs: decode steps are recorded as CUDA graphs; "auto": where that is quicker.
    alone: every row has a prefill and a batch of its own, so that its costs are its own.
    """

    rows: int | None
    graphs: bool | Literal["auto"]
    alone: bool


@dataclass(frozen=True)
class Plan:
    """One run: `settings` is what was asked for, the rest what that means here.

    grid: the cells, method by method.
    """

    settings: Settings
    data: Data
    protocol: Protocol
    grid: tuple[Cell, ...]
    answering: Answering

    @classmethod
    def of(cls, settings: Settings) -> Plan:
        """Read the examples and find the place of each cell's answers.

        Raises UserError for settings, data or budgets that make no run.
        """
        model, preset = settings.model, settings.preset
        protocol = Protocol.of(preset, model.prompt_limit, model.template_options)
        data = read(settings)
        rows = None if settings.decode_rows == "auto" else settings.decode_rows
        answering = Answering(1 if settings.cost else rows, settings.decode_graph, settings.cost)
        grid, found = cells(settings, data, protocol)
        # Of a hub model the commit that the cells' stores are named by: a branch may move on meanwhile.
        pinned = model.model_copy(update={"revision": found.revision or model.revision})
        settings = settings.model_copy(update={"model": pinned})
        return cls(settings, data, protocol, tuple(grid), answering)

    @property
    def model(self) -> Model:
        return self.settings.model

    @property
    def preset(self) -> Preset:
        return self.settings.preset

    @property
    def results(self) -> Path:
        return self.settings.results


def cells(settings: Settings, data: Data, protocol: Protocol) -> tuple[list[Cell], Weights]:
    """Every method at every budget, and the model. Raises UserError for settings or budgets that have no meaning."""
    chosen = [policy for name, fields in _methods(settings).items() for policy in policies(name, fields)]
    stored = codings(settings.cache)
    grid = [(one, budget, coding) for one in chosen for coding in stored for budget in budgets(settings, one, coding)]
    found = weights(settings.model.name, settings.model.revision)
    for policy in chosen:
        made_for.check(f"method {policy.name}", policy.files, found)
    for one in filter(None, stored):
        made_for.check("cache", one.codec.files, found)
    made = []
    for policy, budget, coding in grid:
        variant = " ".join(filter(None, [coding.variant if coding else "", policy.variant]))
        store = _store(settings, data, protocol, found, policy, budget, coding)
        made.append(Cell(policy.name, budget, policy, store, variant, coding))
    return made, found


def _methods(settings: Settings) -> Mapping[str, dict[str, Any]]:
    """The chosen methods' settings. Raises UserError if there are none, or if a method's YAML put them elsewhere."""
    if astray := settings.method:  # where Hydra puts a YAML that names no package
        files = [f"{name}.yaml" for name, content in astray.items() if isinstance(content, dict)]
        raise UserError(f"{', '.join(files) or 'a YAML'} of conf/method: its first line must be '# @package methods'")
    if not settings.methods:
        raise UserError("no method is chosen; give method=snapkv, or several as method=[snapkv,echokv]")
    for name, fields in settings.methods.items():
        if not isinstance(fields, dict) or "_target_" not in fields:
            raise UserError(
                f"methods.{name} names no class: choose the method by method=, or write _target_: CLASS into its YAML"
            )
    return settings.methods


def _store(
    settings: Settings,
    data: Data,
    protocol: Protocol,
    found: Weights,
    policy: Policy,
    budget: int | None,
    coding: Coding | None,
) -> Store:
    model = settings.model
    identity: dict[str, Any] = {
        "data": data.identity,
        "model": {**found.identity, "dtype": model.dtype, "attention": model.attention},
        "method": policy.identity,
        "budget": budget,
        "protocol": protocol.model_dump(),
    }
    if model.dtype not in ("float32", "float64"):
        # In half precision a near tie may fall differently in a batch of another size.
        identity["decode_rows"] = 1 if settings.cost else settings.decode_rows
    if coding:  # what is stored as it is has the identity of before there were codecs
        identity["cache"] = coding.identity
    key = RunKey(data.name, str(model.label), policy.name, budget, identity, {"model": found.title})
    return Store(settings.results, key)


def union_of_needs(some: Sequence[Cell]) -> Needs:
    """What one prefill must record to serve all of these cells."""
    from echokv import Needs  # with torch, which a plan of stored answers need not wait for

    needs = Needs()
    for cell in some:
        with blamed(f"method {cell.method}"):
            needs |= cell.press.needs
    return needs
