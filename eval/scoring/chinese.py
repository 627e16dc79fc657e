"""Words of Chinese texts, by jieba."""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress
from functools import cache
from typing import Any

from eval.keeping.cache import folder as cache_folder


def words(text: str) -> list[str]:
    """Cut a Chinese text into jieba's words."""
    return list(_jieba().cut(text, cut_all=False))


def segmented(text: str) -> str:
    """The words with blanks between them, as the Rouge packages take them."""
    return " ".join(words(text))


@cache
def _jieba() -> Any:
    """Load jieba on first use, without its messages: it takes a second and English tasks need none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.CRITICAL)  # a cache that cannot be written costs a second and no more
    with suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        # By default /tmp/jieba.cache, which on a shared machine is whoever's came first.
        jieba.dt.tmp_dir = str(folder)
    return jieba
