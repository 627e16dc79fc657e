"""Key-point summary: a few decisions told in the middle of talk."""

from random import Random

from eval.synthetic.layout import Draft, Piece, early_slots, join, scatter, tokens, weave
from eval.synthetic.prose import Filler, draw
from eval.synthetic.words import TOWN

_PLANS = (
    "build a {adjective} {place} of {material} beside the {place}",
    "buy {number} {color} wagons for the {place}",
    "close the {place} every {day} in {month}",
    "move the {object} from the {place} to the {place}",
    "pay the {trade} for {number} days of {craft}",
    "plant {number} {color} trees behind the {place}",
    "lend the {color} {object} to the {trade} from {town}",
    "open a school of {craft} in {month}",
)
_REJECTED = "The {trade} asked the council to {plan}, but nothing came of it."
_DISTRACTOR_EVERY = 400  # tokens of context for each plan that was not decided


def key_points(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """`facts` decisions of a council, scattered by `dispersion`, between plans that were not decided."""
    town = rng.choice(TOWN)
    others = max(2, budget // _DISTRACTOR_EVERY)
    decided = [draw(f"The council of {town} decided to {plan}.", rng) for plan in _plans(rng, facts)]
    rejected = [draw(_REJECTED.replace("{plan}", plan), rng) for plan in _plans(rng, others)]
    question = f"What did the council of {town} decide?"
    rows = Filler(rng).paragraphs(budget - sum(map(tokens, [question, *decided, *rejected])))
    slots = sum(map(len, rows))
    inserts = [(rng.randrange(slots), Piece(text)) for text in rejected]
    places = scatter(facts, early_slots(rows), dispersion, rng)
    inserts += [(place, Piece(text, True)) for place, text in zip(places, decided, strict=True)]
    context, spans = join(weave(rows, inserts))
    return Draft(context, spans, question, [" ".join(decided)])


def _plans(rng: Random, count: int) -> list[str]:
    """Return `count` plans of kinds that differ as long as there are kinds."""
    return [plan for _ in range(count // len(_PLANS) + 1) for plan in rng.sample(_PLANS, len(_PLANS))][:count]
