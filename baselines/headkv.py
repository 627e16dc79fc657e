"""HeadKV: query heads that find and use what an answer needs get more of the model's budget than others."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from echokv.errors import UsageError
from echokv.installed import called
from echokv.prefilling import Prefill
from echokv.press import Scores
from echokv.selection import Keep
from echokv.shapes import Shape

from .ada import whole
from .importance import added, read, spread
from .snapkv import SnapKV


@dataclass(frozen=True, kw_only=True)
class HeadKV(SnapKV):
    """SnapKV's scores, with head budgets by an importance measured beforehand (Fu et al., ICLR 2025, section 3).

    Of C tokens a head (the budget without the window) each is sure of C - C // beta; the rest of all heads of the
    model is one pool, shared in proportion to importance ** temperature.

    importance: a file in the public form: an object of "layer-head" and a list of scores, of every query head.
    heads: "file"; or as controls its values given to other heads by `seed` ("shuffled"), or all equal ("uniform"),
        which is SnapKV.
    counts: C is the budget without the window ("free"), or the whole of it with the window on top ("budget"), as
        another public code has it, which stores more.
    groups: of a KV head whose query heads select together, importance is theirs added up ("sum"), or its budget the
        mean of theirs ("mean").
    total: "official" rounds each head's budget, so that the sum may be off by a few; "exact" gives what rounding down
        leaves to the largest remainders, lower heads first.
    surplus: what a head cannot use, for the prompt is too short, is lost ("lost"), as in the public code, or shared
        among the others in proportion to importance ("shared").
    """

    window: int = 8
    importance: str | None = None
    heads: Literal["file", "shuffled", "uniform"] = "file"
    seed: int = 0
    beta: float = 1.2
    temperature: float = 1.0
    counts: Literal["free", "budget"] = "free"
    groups: Literal["sum", "mean"] = "sum"
    total: Literal["official", "exact"] = "official"
    surplus: Literal["lost", "shared"] = "lost"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta <= 1:
            raise UsageError(f"{type(self).__name__}.beta is {self.beta}; it must be above 1: 1 leaves heads nothing")

    @property
    def files(self) -> Mapping[str, str]:
        if self.heads == "uniform":
            return {}
        if self.importance is None:
            raise UsageError(
                f"{type(self).__name__}.importance is missing; it must be a file of head scores, which "
                f"{called('heads')} MODEL makes (methods.headkv.importance=FILE)"
            )
        return {"importance": self.importance}

    def check_model(self, shape: Shape) -> None:
        self.shares(shape)

    def shares(self, shape: Shape) -> list[float]:
        """Importance of each query head, layer by layer; all of the model's add up to 1."""
        scores = [1.0] * (len(shape.places) * shape.heads)
        if self.heads != "uniform":
            scores = read(self.files["importance"], shape.places, shape.heads)
        if self.heads == "shuffled":
            Random(self.seed).shuffle(scores)
        powers = [(score / sum(scores)) ** self.temperature for score in scores]
        return [power / sum(powers) for power in powers]

    def head_budgets(self, scores: Scores, budget: int, prefill: Prefill) -> Keep:
        own = budget - (self.window if self.counts == "free" else 0)
        # The file is read once for all budgets.
        shares = prefill.share((HeadKV, self), lambda: self.shares(prefill.shape))
        ratio = prefill.heads // prefill.groups
        together = ratio if self.granularity == "kv_head" else 1
        if self.groups == "sum":
            shares = added(shares, together)
        sizes = self.share(shares, own, prefill.length - self.window)
        if self.groups == "mean":
            sizes = [round(size / together) for size in added(sizes, together)]
        heads = len(scores[0])
        return [[size + self.window for size in sizes[at : at + heads]] for at in range(0, len(sizes), heads)]

    def share(self, shares: list[float], own: int, most: int) -> list[int]:
        """Tokens of each head, `own` on average and none above `most`."""
        pool = own // self.beta
        least = own - pool
        targets = [share * pool * len(shares) + least for share in shares]
        if self.surplus == "shared":
            targets = spread(targets, shares, most)
        if self.total == "official":
            return [min(round(target), most) for target in targets]
        return [min(size, most) for size in whole(targets, own * len(targets))]
