"""What a preset says about protocol and scoring, to tell which stored runs follow it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from eval.console import conf
from eval.console.errors import UserError
from eval.scoring.metrics import Edit


def edit_of(preset: str) -> Edit:
    """Return the edit similarity that a preset puts into tables.

    Raises:
        UserError: the preset has no file.
    """
    settings = _read("preset", preset)
    if settings is None:
        raise UserError(f"preset {preset!r} has no file in conf/preset: choose --edit difflib or levenshtein")
    return cast(Edit, settings["edit"])


def deviation(protocol: Mapping[str, Any], preset: str, model: str) -> str:
    """Name the rules in which a run differs from what its preset and model say, such as "chat all"; "" if none.

    A preset or model without a file in `conf` has no rules to differ from. A rule that a run does not name, for it is
    of an earlier version, it does not break.
    """
    rules = _rules(preset, model)
    return ", ".join(f"{rule} {own}" for rule, own in protocol.items() if own != rules.get(rule, own))


@cache
def _rules(preset: str, model: str) -> Mapping[str, Any]:
    """What a preset says of a model; nothing where one of them has no file."""
    of_preset, of_model = _read("preset", preset), _read("model", model)
    if of_preset is None or of_model is None:
        return {}
    if not any("${" in str(value) for value in of_preset.values()):
        return of_preset
    from omegaconf import OmegaConf  # which few tables need

    defaults = conf.read(conf.CONF / "config.yaml")  # of what a model's YAML leaves out
    whole = OmegaConf.create({"preset": of_preset, "model": OmegaConf.merge(defaults["model"], of_model)})
    expected = cast(dict[str, Any], OmegaConf.to_container(whole, resolve=True))
    return cast(dict[str, Any], expected["preset"])


def _read(group: str, name: str) -> dict[str, Any] | None:
    content = conf.chosen(group, name)
    if content is None:
        return None
    return cast(dict[str, Any], content.get(group, content))  # a model that also chooses its data names its group
