"""From typed settings to what will run: a frozen plan, of which each room is handed what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate

from echokv import Needs, Press, UsageError
from eval.console.errors import UserError
from eval.console.foreign import blamed
from eval.inputs.examples import Data
from eval.inputs.protocol import Protocol
from eval.keeping.store import RunKey, Store
from eval.planning.data import read
from eval.planning.settings import Model, Preset, Settings


@dataclass(frozen=True)
class Cell:
    """One row of a table: a method at a budget (None for FullKV), and where its answers are kept."""

    method: str
    budget: int | None
    press: Press
    store: Store

    @property
    def label(self) -> str:
        return self.method if self.budget is None else f"{self.method} {self.budget}"

    @property
    def fields(self) -> dict[str, Any]:
        """The method's settings."""
        fields: dict[str, Any] = self.store.key.identity["method"]
        return fields


@dataclass(frozen=True)
class Answering:
    """How answers are made.

    rows: at most so many are decoded as one batch; None is all of one example.
    graphs: decode steps are recorded as CUDA graphs.
    alone: every row has a prefill and a batch of its own, so that its costs are its own.
    """

    rows: int | None
    graphs: bool
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
        return cls(settings, data, protocol, tuple(cells(settings, data, protocol)), answering)

    @property
    def model(self) -> Model:
        return self.settings.model

    @property
    def preset(self) -> Preset:
        return self.settings.preset

    @property
    def results(self) -> Path:
        return self.settings.results


def cells(settings: Settings, data: Data, protocol: Protocol) -> list[Cell]:
    """Every method at every budget. Raises UserError for settings or budgets a method has no meaning for."""
    made = []
    for name, fields in _methods(settings).items():
        press = _press(name, fields)
        for budget in [None] if not press.takes_budget else settings.budget:
            try:
                if budget is not None:
                    with blamed(f"method {name}", UsageError):
                        press.check(budget)
            except UsageError as error:
                raise UserError(str(error)) from error
            made.append(Cell(name, budget, press, _store(settings, data, protocol, name, budget)))
    return made


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


def _press(name: str, settings: dict[str, Any]) -> Press:
    target = settings["_target_"]
    try:
        kind = get_class(target)
    except Exception as error:  # whatever importing it may raise
        cause = error.__cause__ or error  # Hydra's own error only says that there was one
        why = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        raise UserError(f"method {name}: there is no class {target} ({why})") from error
    if not issubclass(kind, Press):  # told before anything is called
        raise UserError(f"method {name}: {target} is not a Press")
    try:
        press = instantiate(settings, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__ or error
        lines = str(cause).splitlines()
        raise UserError(str(cause) if isinstance(cause, UsageError) else f"method {name}: {lines[0]}") from error
    assert isinstance(press, Press)
    return press


def _store(settings: Settings, data: Data, protocol: Protocol, method: str, budget: int | None) -> Store:
    model = settings.model
    identity: dict[str, Any] = {
        "data": data.identity,
        "model": {**_weights(model), "dtype": model.dtype, "attention": model.attention},
        "method": {"name": method, **settings.methods[method]},
        "budget": budget,
        "protocol": protocol.model_dump(),
    }
    if model.dtype not in ("float32", "float64"):
        # In half precision a near tie may fall differently in a batch of another size.
        identity["decode_rows"] = 1 if settings.cost else settings.decode_rows
    return Store(settings.results, RunKey(data.name, str(model.label), method, budget, identity))


def _weights(model: Model) -> dict[str, Any]:
    """Name and revision; of a local folder its last name and a digest of what lies in it, never its path."""
    folder = Path(model.name).expanduser()
    if not folder.exists():
        return {"name": model.name, "revision": model.revision}
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
    content = [f"{file.name} {file.stat().st_size}" for file in files]
    config = folder / "config.json"
    content.append(config.read_text(encoding="utf-8") if config.is_file() else "")
    return {"name": folder.name, "content": sha256("\n".join(content).encode()).hexdigest()[:16]}


def union_of_needs(some: Sequence[Cell]) -> Needs:
    """What one prefill must record to serve all of these cells."""
    needs = Needs()
    for cell in some:
        with blamed(f"method {cell.method}"):
            needs |= cell.press.needs
    return needs
