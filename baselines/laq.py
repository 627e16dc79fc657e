"""LAQ: a window-chosen workspace, one lookahead, its queries choose."""

from dataclasses import dataclass
from typing import Literal

from echokv.lookahead import Lookahead
from echokv.scores import Pooling


@dataclass(frozen=True, kw_only=True)
class LAQ(Lookahead):
    """Lookahead Q-Cache (Wang et al., EMNLP 2025); the defaults are those of its published code.

    SnapKV chooses a workspace as large as the budget, T tokens are decoded on it, and their queries choose from
    the whole prompt. `stage2_window=8` is LAQ++.
    """

    workspace: int | None = None
    bootstrap: Literal["proposals", "window"] = "window"
    pooling: Pooling = "max"
    mask: Literal["official", "none"] = "official"
