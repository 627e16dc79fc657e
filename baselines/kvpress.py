"""NVIDIA's kvpress beside the policies of this harness: its scorers, on our prefill."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.press import Press, Scores

INSTALL = "pip install --no-deps kvpress=={} cachetools fire peft termcolor"


@dataclass(frozen=True, kw_only=True)
class Kvpress(Press):
    """Keep the tokens that a ScorerPress of kvpress scores highest.

    press: the class's name. arguments: what it is made with; its share to remove comes from the budget.
    version: of kvpress. seed: of torch's generator while it scores, for the presses that draw.

    Raises UsageError where kvpress is missing or of another version, for a class that is no ScorerPress, and in
    `score` for one that reads more than the layer, its keys and its values.
    """

    press: str = "KnormPress"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    version: str = "0.5.5"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if "compression_ratio" in self.arguments:
            raise UsageError("Kvpress.arguments has compression_ratio: what is kept is said by the budget alone")
        self.made()

    def made(self) -> Any:
        """The press of kvpress."""
        found = getattr(_kvpress(self.version), self.press, None)
        if not hasattr(found, "score") or not isinstance(found, type):
            raise UsageError(f"Kvpress.press is {self.press!r}: it must be a ScorerPress of kvpress, as KnormPress")
        try:
            return found(**self.arguments)
        except (TypeError, ValueError, AssertionError) as error:
            raise UsageError(f"Kvpress.arguments do not suit {self.press}: {error}") from error

    def scope(self, budget: int) -> int:
        return budget  # a press may read the share that it is to remove

    def score(self, prefill: Prefill, budget: int | None) -> Scores:
        assert budget is not None
        press = copy(self.made())
        # kvpress rounds what it keeps down, so half an entry is added.
        press.compression_ratio = max(0.0, 1 - (budget + 0.5) / prefill.length)
        layers = prefill.model.get_decoder().layers
        others = [_Missing(self.press, what) for what in ("hidden states", "attention weights", "rotary embeddings")]
        devices = [prefill.logits.device] if prefill.logits.is_cuda else []
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                torch.manual_seed(self.seed)
                press.post_init_from_model(prefill.model)
                found = [
                    press.score(layers[place].self_attn, others[0], keys[None], values[None], others[1], others[2])[0]
                    for place, keys, values in zip(prefill.places, prefill.keys, prefill.values, strict=True)
                ]
        except UsageError:
            raise
        except (ValueError, AssertionError, OSError) as error:
            raise UsageError(f"{self.press} of kvpress refuses: {' '.join(str(error).split())}") from error
        return [self.by_kv_head(scores, prefill) for scores in found]


class _Missing:
    """Stands for what a prefill does not hold, and says so as soon as a press reads it."""

    def __init__(self, press: str, what: str) -> None:
        self.told = (press, what)

    def __getattr__(self, _: str) -> Any:
        self._refuse()

    def __getitem__(self, _: Any) -> Any:
        self._refuse()

    def _refuse(self) -> None:
        press, what = self.told
        raise UsageError(
            f"{press} of kvpress reads {what}, which a prefill does not hold: take a press that scores keys and "
            "values alone, such as KnormPress, or the method of that name here"
        )


def _kvpress(wanted: str) -> Any:
    """The package. Raises UsageError unless it is there in the wanted version."""
    try:
        installed = version("kvpress")
        import kvpress
    except (PackageNotFoundError, ImportError) as error:
        lacks = f"kvpress cannot be imported ({error})" if isinstance(error, ModuleNotFoundError) else str(error)
        lacks = "kvpress is not installed" if isinstance(error, PackageNotFoundError) else lacks
        raise UsageError(f"{lacks}: {INSTALL.format(wanted)}") from error
    if installed != wanted:
        raise UsageError(f"kvpress {installed} is installed, Kvpress.version says {wanted}: {INSTALL.format(wanted)}")
    return kvpress
