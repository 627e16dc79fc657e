"""What a preset says about protocol and scoring, to tell which stored runs follow it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import yaml
from omegaconf import OmegaConf

from eval.console.errors import UserError
from eval.inputs.subsets import CONF
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
    defaults: Any = OmegaConf.load(CONF / "config.yaml")  # of what a model's YAML leaves out
    whole = OmegaConf.create({"preset": of_preset, "model": OmegaConf.merge(defaults["model"], of_model)})
    expected = cast(dict[str, Any], OmegaConf.to_container(whole, resolve=True))
    return cast(dict[str, Any], expected["preset"])


def _read(group: str, name: str) -> dict[str, Any] | None:
    path = CONF / group / f"{name}.yaml"
    if name not in {known.stem for known in path.parent.glob("*.yaml")}:  # a label may hold a path
        return None
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return cast(dict[str, Any], content.get(group, content))  # a model that also chooses its data names its group
