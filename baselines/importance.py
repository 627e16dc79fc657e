"""Importance of query heads, read from a file in HeadKV's public form."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from echokv.errors import UsageError


def read(path: str, layers: Sequence[int], heads: int) -> list[float]:
    """The mean score of every query head of some layers of a model, layer by layer.

    path: an object of "layer-head" and a list of scores, one a run of the probe.

    Raises UsageError for a file that cannot be read, has another form, or is of a model of another shape.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        means = {_place(key): fmean(scores) for key, scores in content.items()}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f'{path} holds no scores of heads: it must be {{"layer-head": [score, ...], ...}}') from error
    places = [(layer, head) for layer in layers for head in range(heads)]
    if set(means) != set(places):
        raise UsageError(
            f"{path} has scores of {len(means)}, and the model has {len(places)} heads, {len(layers)} layers of "
            f"{heads}: make one of this model"
        )
    if min(means.values()) < 0 or not any(means.values()):
        raise UsageError(f"{path}: scores of heads must not be negative, and not all 0")
    return [means[place] for place in places]


def added(values: Sequence[float], ratio: int) -> list[float]:
    """Sums over the query heads of each KV head."""
    return [sum(values[first : first + ratio]) for first in range(0, len(values), ratio)]


def spread(targets: list[float], shares: Sequence[float], most: int) -> list[float]:
    """Targets of the same sum, where that is possible, none above `most`: what lies above goes to others by share."""
    while (left := sum(max(0.0, target - most) for target in targets)) > 1e-9:
        targets = [min(target, float(most)) for target in targets]
        free = [target < most for target in targets]
        if not any(free):
            break
        weights = [share * room for share, room in zip(shares, free, strict=True)]
        weights = weights if sum(weights) else list(map(float, free))  # of no importance, all of them alike
        targets = [target + left * weight / sum(weights) for target, weight in zip(targets, weights, strict=True)]
    return targets


def _place(key: str) -> tuple[int, int]:
    layer, head = key.split("-")
    return int(layer), int(head)
