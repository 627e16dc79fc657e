"""EchoKV in a program of one's own: compress prompts, generate, go on."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from echokv.checks import check_arguments, check_cache, check_every, check_place, check_streamer, seeds_of
from echokv.choosing import Rule, rule, settings
from echokv.chosen import Chosen
from echokv.codecs import Codec
from echokv.decoding import advance
from echokv.errors import UsageError
from echokv.further import check_ids, check_positions, compact
from echokv.inputs import prompts, turns
from echokv.prefilling import prefill
from echokv.press import Press
from echokv.progress import layer_bar
from echokv.session import Stretch


class Compressed:
    """Prompts whose caches a press has evicted from: what generates, takes further turns and answers questions.

    Made by `compress`. model, press, budget, tokenizer: as given there. rows: one session a prompt.
    finished: why each answer of the last `generate` ended: "stop" (an end token, stop string or criterion) or "length".
    """

    def __init__(self, model: Any, press: Press, budget: int | None, tokenizer: Any, rows: list[Chosen]) -> None:
        self.model, self.press, self.budget, self.tokenizer, self.rows = model, press, budget, tokenizer, rows
        self.finished: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[list[int]]:
        """All tokens of each prompt and what followed it, evicted ones included."""
        return [[*row.had().tolist(), *row.unfed] for row in self.rows]

    @property
    def entries(self) -> list[int]:
        """Stored (key, value) pairs of each row, summed over layers and KV heads; of sliding layers their windows."""
        return [row.selection.entries + row.prefill.beside() + row.since for row in self.rows]

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values stored for all rows; of a codec's, those of its codes and scales."""
        return sum(row.stored for row in self.rows)

    def copy(self) -> "Compressed":
        """The same once more, to go on in another way; both share what is stored."""
        made = copy(self)
        made.rows, made.finished = [row.same() for row in self.rows], list(self.finished)
        return made

    def feed(self, inputs: Any, evict: bool = True) -> "Compressed":
        """A further turn: feed what follows to each row, then evict to the budget again.

        inputs: as for `compress`, one for each row. Text is taken as it is; messages become what the chat template
            puts behind an answer.
        evict: False leaves all that is held, so that a question may follow a context that was chosen without it.

        Returns itself. Raises UsageError for what `compress` refuses, and for a press that cannot choose among what is
        held: one of unequal layers or heads, or of query moments. All is then as it was before.
        """
        check_place(self.model, self.rows[0].prefill)
        given = [self._after(row, turn) for row, turn in zip(self.rows, self._turns(inputs), strict=True)]
        for row, tokens in zip(self.rows, given, strict=True):
            check_ids(self.model.config, tokens)
            check_positions(self.model.config, row.ends + len(tokens))
        before = [row.same() for row in self.rows]
        try:
            for row, tokens in zip(self.rows, given, strict=True):
                row.absorb(tokens, self.press.needs)
            if evict:
                self.rows = [row.evicted(self.press, self.budget) for row in self.rows]
        except BaseException:
            self.rows = before
            raise
        return self

    def generate(
        self,
        config: Any = None,
        *,
        streamer: Any = None,
        logits_processor: Sequence[Any] = (),
        stopping_criteria: Sequence[Any] = (),
        seed: int | Sequence[int] | None = None,
        evict_every: int | None = None,
        **changes: Any,
    ) -> list[list[int]]:
        """Generate an answer for each row, and return its tokens; an end token is the last of them.

        config: a transformers GenerationConfig; the model's own by default. changes: its fields by name
            (max_new_tokens, do_sample, temperature, top_k, top_p, repetition_penalty, stop_strings, eos_token_id, ...).
        streamer: of transformers, for one row; is told each token as it is chosen.
        logits_processor, stopping_criteria: of transformers, after those that the settings name.
        seed: of drawing, one for each row; without one torch's own generator draws.
        evict_every: evict for every so many tokens that are generated, so that no head ever holds more than the budget
            and memory stays the same however long the answer; None keeps all that is generated.

        A second call goes on where the first ended. Raises UsageError for settings that are not applied here, an answer
        without a limit, and a model that has moved since.
        """
        check_place(self.model, self.rows[0].prefill)
        check_every(evict_every, self.press, self.budget, self.rows[0].codec)
        chosen = settings(self.model, config, changes)
        seeds = seeds_of(seed, len(self.rows), bool(chosen.get("do_sample")))
        check_streamer(streamer, len(self.rows))
        more = logits_processor, stopping_criteria
        rules = [
            rule(self.model, chosen, _with(row.had(), row.unfed), self.tokenizer, *more, one)
            for row, one in zip(self.rows, seeds, strict=True)
        ]
        for row, own in zip(self.rows, rules, strict=True):
            check_positions(self.model.config, row.ends + own.limit)
        try:
            return self._generate(rules, streamer, evict_every)
        finally:
            if streamer is not None:
                streamer.end()

    def reply(self, config: Any = None, **how: Any) -> Any:
        """`generate`, as text without special tokens: of one prompt a text, of several a list of them."""
        if self.tokenizer is None:
            raise UsageError("text is wanted without a tokenizer: compress(..., tokenizer=tokenizer)")
        answers = self.generate(config, **how)
        texts = [self.tokenizer.decode(answer, skip_special_tokens=True) for answer in answers]
        return texts[0] if len(texts) == 1 else texts

    def ask(self, question: Any, config: Any = None, **how: Any) -> Any:
        """`reply` to a question, which leaves no trace: the context is evicted from without it and stays as it is."""
        return self.copy().feed(question, evict=False).reply(config, **how)

    def handover(self, inputs: Any = None) -> dict[str, Any]:
        """Arguments for the model's own `generate`: `model.generate(**held.handover(turn), max_new_tokens=64)`.

        inputs: a turn, which `generate` feeds. Without one the cache must lack a token that was generated last.

        The cache counts evicted tokens, so that positions and masks are right. Pass its attention mask, of ones, as it
        is: transformers would look for the evicted tokens of another one among the kept. What `generate` adds is not
        noted here. Raises UsageError for several rows, for layers or heads of unequal length, and where nothing is left
        to feed.
        """
        from echokv.caches import arguments

        check_place(self.model, self.rows[0].prefill)
        if len(self.rows) != 1:
            raise UsageError(f"{len(self.rows)} rows are held: one can be handed over; compress one prompt for it")
        (row,) = self.rows
        more = [] if inputs is None else self._after(row, self._turns(inputs)[0])
        if not [*row.unfed, *more]:
            raise UsageError(
                "the cache has seen every token, and generate feeds at least one: pass a turn to handover()"
            )
        if more:
            check_ids(self.model.config, more)
        return arguments(row, _with(row.had(), [*row.unfed, *more]))

    def _generate(self, rules: Sequence[Rule], streamer: Any, every: int | None) -> list[list[int]]:
        before = [row.same() for row in self.rows]
        try:
            for row in self.rows:
                if row.unfed:
                    row.absorb([], self.press.needs)
            if streamer is not None:
                streamer.put(self.rows[0].had())
            for row, own in zip(self.rows, rules, strict=True):
                row.begin(own, None if streamer is None else lambda token: streamer.put(torch.tensor([token])))
            self._decode([own.limit for own in rules], every)
        except BaseException:  # whatever a streamer or criterion raises, and an interrupt: nothing has been said
            self.rows = before
            raise
        for row in self.rows:
            row.close()
        self.finished = ["stop" if row.ended else "length" for row in self.rows]
        return [list(row.said) for row in self.rows]

    def _decode(self, limits: Sequence[int], every: int | None) -> None:
        """Decode the rows to their ends; with `every`, so many tokens at a time, for which eviction makes room."""
        while True:
            left = [0 if row.stopped else n - len(row.said) for row, n in zip(self.rows, limits, strict=True)]
            if not any(left):
                return
            if every and self.budget is not None:
                self.rows = [
                    row.evicted(self.press, self.budget - every) if n else row
                    for row, n in zip(self.rows, left, strict=True)
                ]
            advance(*(Stretch(row, min(n, every or n)) for row, n in zip(self.rows, left, strict=True)))

    def _turns(self, inputs: Any) -> list[Int[Tensor, " n"]]:
        given = turns(inputs, self.tokenizer, self.model.generation_config.pad_token_id)
        if len(given) != len(self.rows):
            raise UsageError(f"{len(given)} turns are given for {len(self.rows)} prompts: give one for each")
        return given

    def _after(self, row: Chosen, turn: Tensor) -> list[int]:
        """A turn's tokens, without the end token that a chat template repeats where the answer has it already."""
        tokens: list[int] = turn.tolist()
        ends = self.model.generation_config.eos_token_id
        known = ends if isinstance(ends, list) else [ends]
        return tokens[1:] if row.unfed and row.unfed[-1] in known and tokens[:1] == row.unfed[-1:] else tokens


def compress(
    model: Any,
    inputs: Any,
    press: Press,
    budget: int | None = None,
    *,
    tokenizer: Any = None,
    cache: Codec | None = None,
    progress: bool = False,
) -> Compressed:
    """Read prompts with complete attention, and keep what a press chooses of each one's cache.

    model: a loaded transformers model, as for `prefill`. inputs: token ids (a tensor, a list), what a tokenizer or
        apply_chat_template returned, or, with a tokenizer, text or messages; one prompt or a list of them, of any
        lengths. press: a policy, such as EchoKV(). budget: tokens kept per KV head; None for a press without one.
    cache: how what is kept is stored, such as Kivi(bits=4); None is as it is. What comes after it is stored as it is
        until a further turn is evicted from: then all that is kept is packed anew, which rounds once more what was
        rounded before.
    progress: draw a bar on a terminal while it reads, of layers; nothing elsewhere, nor for what takes below a second.

    What is evicted is freed. Raises UsageError for anything else, saying what to pass instead.
    """
    check_arguments(model, press, budget)
    check_cache(model, cache)
    given = prompts(inputs, tokenizer, model.generation_config.pad_token_id)
    for ids in given:
        check_ids(model.config, ids.tolist())
    rows = []
    with layer_bar(model, len(given), progress):
        for ids in given:
            whole = prefill(model, ids, press.needs, tokenizer=tokenizer)
            rows.append(Chosen(*compact(whole, press.select(whole, budget), cache), codec=cache))
    return Compressed(model, press, budget, tokenizer, rows)


def _with(had: Tensor, unfed: Sequence[int]) -> Tensor:
    return torch.cat([had, had.new_tensor(list(unfed))])
