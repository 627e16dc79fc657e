"""Stores which prompt tokens each answer's cache kept, for the report to show: `record.selections=true`."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from echokv import Lookahead, Prefill, Selection, prefill
from eval.answering.answers import See
from eval.console.errors import UserError
from eval.console.progress import Reporter
from eval.inputs import evidence
from eval.inputs.asked import Asked
from eval.inputs.examples import Example
from eval.inputs.protocol import Protocol
from eval.inputs.truncation import Encoded
from eval.keeping import selections
from eval.keeping.manifests import digest
from eval.keeping.selections import Step
from eval.planning.plan import Cell, union_of_needs
from eval.planning.recording import Recording


@dataclass(frozen=True)
class Recorder:
    """Writes RESULTS/selections/DATA/MODEL/RUN/SUBSET.*.jsonl, and the prompts beside these runs."""

    recording: Recording
    protocol: Protocol

    def watch(self, example: Example, asked: Asked, tokenizer: Any, made_by: dict[str, Any]) -> See:
        """What `eval.answering.answers.answers` is to call once it has chosen for all cells."""
        return lambda filled, chosen: self._keep(example, asked, tokenizer, made_by, filled, chosen)

    def complete(self, model: Any, tokenizer: Any, made_by: dict[str, Any]) -> None:
        """Select once more for what is unseen."""
        if not self.recording.unseen:
            return
        with Reporter(len(self.recording.unseen)) as reporter:
            for example, grid in self.recording.unseen:
                asked = Asked.of(example, self.protocol, model, tokenizer)
                needs = union_of_needs(grid)
                filled = prefill(
                    model,
                    torch.tensor(asked.encoded.ids),
                    needs,
                    asked.stop_ids,
                    asked.min_new_tokens,
                    asked.generation,
                    tokenizer,
                )
                chosen = [(cell, cell.press.select(filled, cell.budget)) for cell in grid]
                self._keep(example, asked, tokenizer, made_by, filled, chosen)
                reporter.advance(example.subset.name)

    def _keep(
        self,
        example: Example,
        asked: Asked,
        tokenizer: Any,
        made_by: dict[str, Any],
        filled: Prefill,
        chosen: Sequence[tuple[Cell, Selection]],
    ) -> None:
        """Store the final selections and, of policies that decode ahead, their workspaces."""
        name = self._prompt(example, asked, tokenizer)
        ahead: dict[tuple[str, Any], list[Step]] = {}
        for cell, selection in chosen:
            press, budget, spaces = cell.press, cell.budget, []
            if isinstance(press, Lookahead) and budget is not None and filled.length > budget:
                known = (cell.row, press.scope(budget))
                if known not in ahead:
                    rounds = enumerate(press.rounds(filled, budget), 1)
                    ahead[known] = [_step(f"W{place}", part.workspace) for place, part in rounds]
                spaces = ahead[known]
            packed = [selections.pack(step) for step in [*spaces, _step(selections.FINAL, selection)]]
            about = {"_id": example.id, "fingerprint": example.fingerprint, "prompt": name}
            row = {**about, "prompt_tokens": filled.length, "steps": packed}
            self.recording.stores[cell.label].append(example.subset.name, row, made_by)

    def _prompt(self, example: Example, asked: Asked, tokenizer: Any) -> str:
        """Store the prompt if it is not there, and return its name."""
        encoded = asked.encoded
        found = evidence.locate(example, encoded, tokenizer, ())
        pieces = selections.cut(encoded.text, _ends(encoded, tokenizer))
        content = {"pieces": pieces, "evidence": _ranges(found.tokens if found else ())}
        name = digest([encoded.ids, content["evidence"]])
        folder = self.recording.place / selections.PROMPTS
        path = folder / f"{name}.json"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f".{name}.{uuid.uuid4().hex[:8]}")
            scratch.write_text(json.dumps(content), encoding="utf-8")
            os.replace(scratch, path)
        return name


def _step(name: str, selection: Selection) -> Step:
    layers = zip(selection.indices, selection.kept, strict=True)
    found = [[head[:n] for head, n in zip(np.asarray(index.cpu()), kept, strict=True)] for index, kept in layers]
    return Step(name, selection.length, tuple(found))


def _ends(encoded: Encoded, tokenizer: Any) -> list[int]:
    """Where each token ends in the text. Raises UserError for a tokenizer that cannot tell."""
    if not getattr(tokenizer, "is_fast", False):
        raise UserError("record.selections needs a fast tokenizer, for where tokens lie in the text; this one is slow")
    return [end for _, end in encoded.offsets(tokenizer)]


def _ranges(tokens: Sequence[int]) -> list[list[int]]:
    """Ascending positions as half-open ranges."""
    found: list[list[int]] = []
    for token in tokens:
        if found and found[-1][1] == token:
            found[-1][1] = token + 1
        else:
            found.append([token, token + 1])
    return found
