"""The model under test: its prompts, presses, prefills and whole answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hydra.utils import instantiate
from transformers import AutoConfig, AutoModelForCausalLM

from echokv import Needs, Prefill, Press, Selection, Session, UsageError, decode_rows, embedded, prefill
from echokv.graphs import step_recorder
from echokv.models import DTYPES, device_named
from echokv.rows import Record
from eval.answering.answers import Task, answers
from eval.answering.loading import loaded
from eval.answering.measure import Meter
from eval.console.errors import UserError
from eval.inputs.asked import Asked
from eval.inputs.truncation import Encoded
from eval.planning.plan import Cell
from eval.planning.policies import Given
from eval.planning.settings import Model, Settings
from eval.planning.settings import composed as settings_of

from .measured import trim

METHODS = ("full", "streamingllm", "h2o", "snapkv", "pyramidkv", "laq", "echokv")
WARM = 256  # prompt tokens of the first, uncounted answer; a GPU is warmed at the length measured


@dataclass(frozen=True)
class Answered:
    """One run of the runner over some cells: its seconds, the peak of its memory, each cell's answer."""

    seconds: float
    peak: int
    answers: list[dict[str, Any]]


@dataclass(frozen=True)
class Bench:
    """A model, its presses and the settings of the run.

    tokenizer: None if the folder of a random model has none. options: the command line's.
    record: how decode steps are recorded, by the setting `decode_graph`.
    """

    model: Any
    tokenizer: Any
    presses: dict[str, Press]
    settings: Model
    options: Any
    record: Record | None = None
    _answered: dict[tuple[str, ...], list[Answered]] = field(default_factory=dict)
    _filled: dict[int, Prefill] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Any) -> Bench:
        """Load what the command line asks for. Raises UserError and UsageError for the user's mistakes."""
        config = composed(options, f"method=[{','.join(METHODS)}]")
        settings = config.model
        model, tokenizer = load(settings, options.random)
        positions = model.config.max_position_embeddings
        longest = max(options.length + options.tokens, *options.lengths)
        if longest > positions:
            raise UserError(
                f"{longest} tokens asked for; the model has {positions} positions: lower --length, --lengths"
            )
        presses = {name: instantiate(fields, _convert_="all") for name, fields in config.methods.items()}
        for press in presses.values():
            for budget in options.budgets if press.takes_budget else []:
                press.check(budget)
        record = step_recorder(config.decode_graph, model, print)
        return cls(model, tokenizer, presses, settings, options, record)

    def bare(self) -> Bench:
        """The same with the model as a user of the library has it."""
        return replace(self, model=load(self.settings, self.options.random, held=False)[0], _answered={}, _filled={})

    @property
    def length(self) -> int:
        return int(self.options.length)

    @property
    def budgets(self) -> list[int]:
        return list(self.options.budgets)

    def ids(self, length: int) -> torch.Tensor:
        """Random token ids, the same for the same length."""
        generator = torch.Generator().manual_seed(length)
        low = min(100, self.model.config.vocab_size // 2)  # most special tokens lie below
        return torch.randint(low, self.model.config.vocab_size, (length,), generator=generator)

    def fill(self, length: int) -> Prefill:
        """Prefill a prompt with all that the window methods and lookaheads need; `filled` has it until the next."""
        self._filled.clear()
        window = max(press.needs.window for press in self.presses.values())
        self._filled[length] = prefill(self.model, self.ids(length), Needs(window=window))
        return self._filled[length]

    def filled(self, length: int) -> Prefill:
        """The latest prefill, if it is of this length, or else a new one."""
        return self._filled.get(length) or self.fill(length)

    def decode(self, filled: Prefill, selections: Sequence[Selection], tokens: int) -> None:
        """Decode as many tokens on each selection, as one batch."""
        sessions = [Session(filled, selection) for selection in selections]
        decode_rows(sessions, tokens, self.record)

    def cells(self, methods: Sequence[str]) -> list[Cell]:
        """Some methods at all budgets."""
        store: Any = SimpleNamespace()  # nothing is stored
        return [
            Cell(name, budget, Given(self.presses[name]), store)
            for name in methods
            for budget in (self.budgets if self.presses[name].takes_budget else [None])
        ]

    def answer(self, cells: Sequence[Cell], repeats: int = 1) -> Answered:
        """The runner's whole work for these cells: prefill, selections, decoding as one batch.

        The same cells are answered once, or so many times, of which the quickest counts; all parts read the same
        measurement.
        """
        key = tuple(cell.label for cell in cells)
        found = self._answered.setdefault(key, [])
        while len(found) < repeats:
            self._filled.clear()
            trim()
            found.append(self._answer(cells, self.length, self.options.tokens))
        return min(found, key=lambda one: one.seconds)

    def warm(self) -> int:
        """Answer once, uncounted, and return the length of the prompt."""
        length = self.length if self.model.device.type == "cuda" else min(WARM, self.length)
        self._answer(self.cells(["snapkv"])[:1], length, 16)  # enough to decide how steps are recorded
        return length

    def _answer(self, cells: Sequence[Cell], length: int, tokens: int) -> Answered:
        asked = Asked(
            encoded=Encoded(tuple(self.ids(length).tolist()), "", truncated=False, tokens_before=length),
            stop_ids=frozenset(),
            max_new_tokens=tokens,
            min_new_tokens=0,
            context=length,
        )
        with Meter() as meter:
            found = run(asked, cells, self.model, self.record)
        return Answered(meter.seconds, max(answer["peak_bytes"] for answer in found), found)


def run(asked: Asked, cells: Sequence[Cell], model: Any, record: Record | None) -> list[dict[str, Any]]:
    """What `run.py` does with one prompt: prefill, every cell's selection, all answers as one batch, measured."""
    return [answer for _, _, answer in answers([Task(asked, cells)], model, None, record)]


def composed(options: Any, *overrides: str) -> Settings:
    """The settings under the preset of equal bytes, with the command line's model and settings."""
    return settings_of([*overrides, f"model={options.model}", "preset=equal_bytes", *options.set])


def load(settings: Model, random: bool, dtype: str | None = None, held: bool = True) -> tuple[Any, Any]:
    """The model and its tokenizer; a random model has the named one's shape and may lack a tokenizer.

    held: as the runner has it, with its weights in a second order; a random one never.
    """
    kind = dtype or settings.dtype
    if not random:
        return loaded(settings.model_copy(update={"dtype": kind}), held)
    folder = str(embedded.folder()) if settings.name == embedded.NAME else settings.name
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the shape of '{folder}' ({' '.join(str(error).split())[:80]}): "
            "give a folder with its config.json, --set model.name=FOLDER"
        ) from error
    if settings.device_map:
        raise UsageError("random weights lie on one device: leave model.device_map unset, or --random out")
    made = DTYPES.get(kind) or config.dtype or torch.float32
    torch.manual_seed(0)
    with torch.device(device_named(settings.device)):
        model = AutoModelForCausalLM.from_config(config, dtype=made, attn_implementation=settings.attention).eval()
    return model, _tokenizer(folder)


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError):
        return None


def weights(bench: Bench) -> str:
    """Where another program finds the model under test: its name or folder; a random one is written there first."""
    if not bench.options.random:
        name = bench.settings.name
        return str(embedded.folder()) if name == embedded.NAME else name
    folder = Path(bench.options.out) / "random-model"
    bench.model.save_pretrained(folder)
    return str(folder)
