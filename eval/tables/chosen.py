"""The stored runs that the settings of a command line name: those that run.py with the same settings would add to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from echokv.installed import called
from eval.console import mistakes
from eval.console.errors import UserError
from eval.inputs import sources
from eval.inputs.protocol import Protocol
from eval.planning.budgets import given
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

    Under `budget_bytes` a run is there once for each number of bytes that its tokens were made of (`Run.room`): what is
    stored knows tokens alone.

    An archive of records is not read for it, so that no hub is asked: where answers to two editions lie there, both
    are returned.

    Raises:
        UserError: none is stored.
    """
    source = sources.made(settings.data.target, settings.data.own)
    label = str(settings.model.label)
    folder = settings.results / source.name / label
    found = collect.find(settings.results, source.name, label) if folder.is_dir() else []
    shared, rows = _shared(settings), _rows(settings)
    of_data = [run for run in found if _is_of(run.identity, shared) and _same_data(run.identity, source)]
    kept = [replace(run, room=room) for run in of_data for room in rows.get(_row(run.identity), ())]
    if not kept:
        raise UserError(f"no run of these settings is stored in {folder}: run {called()} {' '.join(words)} first")
    return kept


def _shared(settings: Settings) -> dict[str, str]:
    """What the identities of all runs hold alike besides the data, part by part."""
    model = settings.model
    weighed = {**weights(model.name, model.revision).identity, "dtype": model.dtype, "attention": model.attention}
    protocol = Protocol.of(settings.preset, model.prompt_limit, model.template_options)
    expected: dict[str, Any] = {"model": weighed, "protocol": protocol.model_dump()}
    if model.dtype not in ("float32", "float64"):
        expected["decode_rows"] = 1 if settings.cost else settings.decode_rows
    return {part: _plain(value) for part, value in expected.items()}


def _rows(settings: Settings) -> dict[str, list[int | None]]:
    """The rows of these settings (`_row`), each with the bytes that its budget was made of."""
    found: dict[str, list[int | None]] = {}
    for policy in (policy for name, fields in settings.methods.items() for policy in policies(name, fields)):
        for coding in codings(settings.cache):
            about = {"method": policy.identity, "cache": coding and coding.identity}
            for budget, room in given(settings, policy, coding):
                found.setdefault(_row({**about, "budget": budget}), []).append(room)
    return found


def _row(identity: Mapping[str, Any]) -> str:
    """What of an identity tells the rows of a table apart."""
    return _plain([identity.get(part) for part in ("method", "cache", "budget")])


def _is_of(identity: Mapping[str, Any], shared: Mapping[str, str]) -> bool:
    return all(_plain(identity.get(part)) == value for part, value in shared.items())


def _plain(value: Any) -> str:
    """A value as a manifest has it."""
    return json.dumps(value, sort_keys=True)


def _same_data(identity: Mapping[str, Any], source: sources.Source) -> bool:
    """An archive's digest is not asked for: the source would have to fetch it."""
    data = identity.get("data")
    if isinstance(data, dict) and "sha256" in data:
        return data.get("source") == source.name
    return _plain(data) == _plain(source.identity)
