"""Controls for EchoKV's refresh: what if the new workspace were chosen at random, or by the true queries?"""

from dataclasses import dataclass
from typing import Literal

import torch

from echokv.lookahead import EchoKV, Round
from echokv.prefilling import Prefill
from echokv.press import Scores
from echokv.selection import Selection
from echokv.session import Ahead, Session, Stretch


@dataclass(frozen=True, kw_only=True)
class RandomRefresh(EchoKV):
    """EchoKV whose refresh draws the new workspace at random: a refresh without feedback.

    seed: of the draw, which also depends on the layer and on the step of the refresh, not on the prompt.
    """

    seed: int = 0

    def rescore(self, done: Round, prefill: Prefill) -> Scores:
        heads = prefill.heads if self.granularity == "query_head" else prefill.groups
        generator = torch.Generator().manual_seed(1000 * self.seed + done.first + len(done.tokens))
        device = prefill.keys[0].device
        return [torch.rand(heads, prefill.length, generator=generator).to(device) for _ in range(prefill.layers)]


@dataclass(frozen=True, kw_only=True)
class OracleRefresh(EchoKV):
    """EchoKV whose refresh is chosen by true queries: those of greedy decoding on the complete cache.

    It costs what eviction is meant to save, and bounds what better feedback could bring.

    observe: "same" takes the true queries of the steps that the lookahead has just made, "next" those of the
        steps that follow until the lookahead's end (those just made, if the true answer ends before).
    """

    observe: Literal["same", "next"] = "same"

    def rescore(self, done: Round, prefill: Prefill) -> Ahead[Scores]:
        whole = Selection.everything(prefill.layers, prefill.groups, prefill.length)
        oracle = Session(prefill, whole, record=True)
        yield Stretch(oracle, self.steps, stop=self.eos == "stop")
        end = done.first + len(done.tokens)
        same, following = slice(done.first, end), slice(end, None)
        some = following if self.observe == "next" and len(oracle.fed) > end else same
        if not oracle.fed[some]:  # the true answer ended before this round began
            some = slice(None)
        return self.attention([part[:, some] for part in oracle.queries], prefill)
