"""The examples of a run, read and found fit to be scored."""

from __future__ import annotations

from eval.console.errors import UserError
from eval.inputs import examples, sources
from eval.inputs.examples import Data
from eval.planning.settings import Settings
from eval.scoring import official


def read(settings: Settings) -> Data:
    """The examples that the settings choose.

    Raises UserError for unknown subsets or metrics, missing or malformed data, and records that their metric cannot
    score: better now than after the last answer.
    """
    chosen = settings.data
    source = sources.made(chosen.target, chosen.own)
    wanted = settings.subset or chosen.subsets or source.subsets()
    data = examples.load(source, wanted, settings.limit, settings.shard, chosen.prompts)
    for example in data.examples:
        record, subset = example.record, example.subset
        try:
            official.check(subset, record["answers"], record["all_classes"])
        except UserError as error:
            raise UserError(f"{data.origins[subset.name]}, _id {example.id!r}: {error}") from error
    return data
