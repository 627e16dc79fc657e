"""From a composed configuration to what will run: cells of method and budget, each with its store."""

from __future__ import annotations

from collections.abc import Sequence
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


def cells(config: dict[str, Any], data: Data, protocol: Protocol) -> list[Cell]:
    """Every method at every budget. Raises UserError for settings or budgets a method has no meaning for."""
    made = []
    for name, settings in _methods(config).items():
        press = _press(name, settings)
        for budget in [None] if not press.takes_budget else budgets(config["budget"]):
            try:
                if budget is not None:
                    with blamed(f"method {name}", UsageError):
                        press.check(budget)
            except UsageError as error:
                raise UserError(str(error)) from error
            made.append(Cell(name, budget, press, _store(config, data, protocol, name, budget)))
    return made


def _methods(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The chosen methods' settings. Raises UserError if there are none, or if a method's YAML put them elsewhere."""
    if astray := config.get("method"):  # where Hydra puts a YAML that names no package
        files = [f"{name}.yaml" for name, content in astray.items() if isinstance(content, dict)]
        raise UserError(f"{', '.join(files) or 'a YAML'} of conf/method: its first line must be '# @package methods'")
    methods: dict[str, dict[str, Any]] = config.get("methods") or {}
    if not methods:
        raise UserError("no method is chosen; give method=snapkv, or several as method=[snapkv,echokv]")
    for name, settings in methods.items():
        if not isinstance(settings, dict) or "_target_" not in settings:
            raise UserError(
                f"methods.{name} names no class: choose the method by method=, or write _target_: CLASS into its YAML"
            )
    return methods


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


def budgets(value: Any) -> list[int]:
    """One budget or a list of them. Raises UserError unless they are whole numbers of at least 1."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, int) or one < 1:
            raise UserError(f"budget is {one!r}; give a whole number of tokens per head, at least 1")
    if not values:
        raise UserError("budget is an empty list; give a number such as 128")
    return list(dict.fromkeys(values))


def _store(config: dict[str, Any], data: Data, protocol: Protocol, method: str, budget: int | None) -> Store:
    model = config["model"]
    identity = {
        "data": data.identity,
        "model": {**_weights(model), "dtype": model["dtype"], "attention": model["attention"]},
        "method": {"name": method, **config["methods"][method]},
        "budget": budget,
        "protocol": vars(protocol),
    }
    if model["dtype"] not in ("float32", "float64"):
        # In half precision a near tie may fall differently in a batch of another size.
        identity["decode_rows"] = config["decode_rows"]
    return Store(_root(config["results"]), RunKey(data.name, model["label"], method, budget, identity))


def _root(results: Any) -> Path:
    if not isinstance(results, str) or not results.strip():
        raise UserError(f"results is {results!r}; name a folder, such as results=./results")
    return Path(results)


def _weights(model: dict[str, Any]) -> dict[str, Any]:
    """Name and revision; of a local folder its last name and a digest of what lies in it, never its path."""
    folder = Path(str(model["name"])).expanduser()
    if not folder.exists():
        return {"name": model["name"], "revision": model["revision"]}
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
