"""The stored runs that the settings of a command line name: those that run.py with the same settings would add to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eval.console import mistakes
from eval.console.called import called
from eval.console.errors import UserError
from eval.inputs import sources
from eval.inputs.protocol import Protocol
from eval.planning.budgets import budgets
from eval.planning.codings import codings
from eval.planning.policies import policies
from eval.planning.settings import Settings, composed
from eval.planning.weights import weights
from eval.tables import collect
from eval.tables.collect import Run


def settings_of(words: Sequence[str]) -> Settings:
    """The settings that NAME=VALUE words compose to. Raises UserError for wrong ones."""
    try:
        return composed(words)
    except Exception as error:
        if (message := mistakes.explain(error)) is None:
            raise
        raise UserError(message) from error


def runs(settings: Settings, words: Sequence[str]) -> list[Run]:
    """Return the stored runs of these settings, whatever else lies beside them.

    An archive of records is not read for it, so that no hub is asked: where answers to two editions lie there, both
    are returned.

    Raises:
        UserError: none is stored.
    """
    source = sources.made(settings.data.target, settings.data.own)
    label = str(settings.model.label)
    folder = settings.results / source.name / label
    found = collect.find(settings.results, source.name, label) if folder.is_dir() else []
    expected = _expected(settings)
    kept = [run for run in found if _is_of(run.identity, expected) and _same_data(run.identity, source)]
    if not kept:
        raise UserError(f"no run of these settings is stored in {folder}: run {called()} {' '.join(words)} first")
    return kept


def _expected(settings: Settings) -> dict[str, list[str]]:
    """What the runs' identities hold besides the data: each part's possible values; "row" is three parts as one."""
    model = settings.model
    weighed = {**weights(model.name, model.revision).identity, "dtype": model.dtype, "attention": model.attention}
    protocol = Protocol.of(settings.preset, model.prompt_limit, model.template_options)
    chosen = [policy for name, fields in settings.methods.items() for policy in policies(name, fields)]
    rows = [
        [policy.identity, coding and coding.identity, budget]
        for policy in chosen
        for coding in codings(settings.cache)
        for budget in budgets(settings, policy, coding)
    ]
    expected: dict[str, list[Any]] = {"model": [weighed], "protocol": [protocol.model_dump()], "row": rows}
    if model.dtype not in ("float32", "float64"):
        expected["decode_rows"] = [1 if settings.cost else settings.decode_rows]
    return {part: [_plain(value) for value in values] for part, values in expected.items()}


def _is_of(identity: Mapping[str, Any], expected: Mapping[str, Sequence[str]]) -> bool:
    row = [identity.get(part) for part in ("method", "cache", "budget")]
    return all(_plain({**identity, "row": row}.get(part)) in values for part, values in expected.items())


def _plain(value: Any) -> str:
    """A value as a manifest has it."""
    return json.dumps(value, sort_keys=True)


def _same_data(identity: Mapping[str, Any], source: sources.Source) -> bool:
    """An archive's digest is not asked for: the source would have to fetch it."""
    data = identity.get("data")
    if isinstance(data, dict) and "sha256" in data:
        return data.get("source") == source.name
    return _plain(data) == _plain(source.identity)
