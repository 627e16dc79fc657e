"""Tasks over numbered paragraphs: which one fits a summary, and how many different ones there are."""

from collections import Counter
from random import Random

from eval.synthetic.layout import Draft, Piece, join, tokens
from eval.synthetic.prose import Filler, draw, people
from eval.synthetic.words import POOLS

_PARAGRAPH = 90  # tokens of context for each paragraph, up to as many paragraphs as LongBench shows
_MOST_PARAGRAPHS = 30
# What a paragraph says, and what its summary says about the same.
_ERRANDS = (
    ("to sell a {color} {object} of {material}", "the sale of a {color} {object} of {material}"),
    (
        "to repair the {adjective} {object} of the {place}",
        "the repair of the {adjective} {object} of the {place}",
    ),
    (
        "to buy {number} boxes of {food} for the {place}",
        "the purchase of {number} boxes of {food} for the {place}",
    ),
    ("to find a lost {animal} near the {place}", "the search for a lost {animal} near the {place}"),
    ("to teach {craft} at the {place}", "the lessons in {craft} at the {place}"),
    ("to paint a {color} {animal} in the {place}", "the painting of a {color} {animal} in the {place}"),
)


def retrieval(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """Each paragraph tells of one person's errand; the question rewords one, its number is the answer."""
    count = min(_MOST_PARAGRAPHS, max(4, budget // _PARAGRAPH))
    asked = rng.randrange(count)
    openings: list[str] = []
    question = ""
    for i, name in enumerate(people(rng, count)):
        words = {slot: rng.choice(pool) for slot, pool in POOLS.items()}
        told, summed = rng.choice(_ERRANDS)
        openings.append(draw(f"{name}, a {{trade}} from {{town}}, came {told}.", rng, **words))
        if i == asked:
            question = draw(f"{name} from {{town}} and {summed}.", rng, **words)
    heads = [f"Paragraph {i + 1}:" for i in range(count)]
    left = budget - sum(map(tokens, [question, *heads, *openings])) - count
    filler = Filler(rng)
    rows: list[list[Piece]] = []
    for i in range(count):
        body = filler.sentences(left // (count - i))
        left -= sum(map(tokens, body))
        rows.append([Piece(heads[i]), Piece(openings[i], i == asked), *map(Piece, body)])
    context, spans = join(rows)
    return Draft(context, spans, question, [f"Paragraph {asked + 1}"])


def counting(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """Numbered paragraphs, some of them copies of others; the evidence is the first copy of each."""
    count = min(_MOST_PARAGRAPHS, max(4, budget // _PARAGRAPH))
    distinct = rng.randint(count // 3, count)
    # The last text is never copied: what is left over of the budget goes into it once.
    order = [*range(distinct), *(rng.randrange(max(1, distinct - 1)) for _ in range(count - distinct))]
    copies = Counter(order)
    heads = [f"Paragraph {i + 1}:" for i in range(count)]
    left = budget - sum(map(tokens, heads)) - count
    filler = Filler(rng)
    texts: list[str] = []
    for i in range(distinct):
        body = filler.sentences(left // sum(copies[j] for j in range(i, distinct)))
        left -= sum(map(tokens, body)) * copies[i]
        texts.append(" ".join(body))
    rng.shuffle(order)
    first = {text: place for place, text in reversed(list(enumerate(order)))}
    rows = [[Piece(heads[place]), Piece(texts[text], first[text] == place)] for place, text in enumerate(order)]
    context, spans = join(rows)
    return Draft(context, spans, "", [str(distinct)])
