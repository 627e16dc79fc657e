"""Tasks about numbers and names told somewhere in a long text: one fact, several facts, a chain of two."""

from random import Random

from eval.synthetic.layout import Draft, Piece, early_slots, join, scatter, tokens, weave
from eval.synthetic.prose import Filler, draw, people
from eval.synthetic.words import EMBLEM

_KINDS = ("pass code", "locker number", "account number", "badge number", "phone number", "ticket number")
_LEADS = (
    "The",
    "The",
    "In {month}, the",
    "According to the {trade}, the",
    "As the {trade} from {town} wrote, the",
)
_CHAINS = (("ship", "captain"), ("team", "trainer"), ("paper", "editor"), ("club", "founder"))
_DISTRACTOR_EVERY = 256  # tokens of context for each fact about somebody else
_LEAST_DISTRACTORS = 3
_DOCUMENT = 200  # tokens of context for each document of a chain
_MOST_DOCUMENTS = len(EMBLEM)


def one_fact(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """One number of one person, among the same kind of numbers of others."""
    return _numbers(rng, budget, dispersion, 1)


def several_facts(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """The numbers of `facts` people asked together, scattered by `dispersion`."""
    return _numbers(rng, budget, dispersion, facts)


def _numbers(rng: Random, budget: int, dispersion: float, count: int) -> Draft:
    kind = rng.choice(_KINDS)
    others = max(_LEAST_DISTRACTORS, budget // _DISTRACTOR_EVERY)
    names = people(rng, count + others)
    values = [str(value) for value in rng.sample(range(10_000, 100_000), count + others)]
    told = [
        draw(f"{rng.choice(_LEADS)} {kind} of {name} is {value}.", rng)
        for name, value in zip(names, values, strict=True)
    ]
    asked = rng.sample(range(count), count)
    question = _question(kind, [names[i] for i in asked])
    rows = Filler(rng).paragraphs(budget - sum(map(tokens, told)) - tokens(question))
    slots = sum(map(len, rows))
    inserts = [(rng.randrange(slots), Piece(text)) for text in told[count:]]
    places = scatter(count, early_slots(rows), dispersion, rng)
    inserts += [(place, Piece(text, True)) for place, text in zip(places, told[:count], strict=True)]
    context, spans = join(weave(rows, inserts))
    return Draft(context, spans, question, [", ".join(values[i] for i in asked)])


def _question(kind: str, names: list[str]) -> str:
    """Ask, and begin the answer: a small model then goes on with the numbers alone."""
    many = len(names) > 1
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if many else names[0]
    asked = f"the {kind}{'s' * many} of {listed}"
    verb = "are" if many else "is"
    return f"What {verb} {asked}?\nAnswer: T{asked[1:]} {verb}"


def two_hops(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """A person's ship (team, paper, club) told in one document, its captain (trainer, ...) in another.

    Every document tells of a person and of a captain, so only the chain leads to the answer, which names the
    ship and the captain. At dispersion 0 the two documents are neighbours; the last one is never among them.
    """
    count = min(_MOST_DOCUMENTS, max(3, budget // _DOCUMENT))
    kind, role = rng.choice(_CHAINS)
    things = rng.sample(EMBLEM, count)
    names = people(rng, 2 * count)
    first, second = scatter(2, count - 2, dispersion, rng)
    asked, other = rng.sample((first, second + 1), 2)
    homes = rng.sample([i for i in range(count) if i != other], count - 1)
    homes.insert(asked, other)  # the thing of person i is told about in document homes[i]
    told = [f"The {kind} of {who} is called {things[home]}." for who, home in zip(names, homes, strict=False)]
    led = [f"The {role} of {thing} is {head}." for thing, head in zip(things, names[count:], strict=True)]
    ask = f"What is the {kind} of {names[asked]}, and who is its {role}?"
    question = f"{ask}\nAnswer: The {kind} of {names[asked]} is called"
    heads = [f"Document {i + 1}:" for i in range(count)]
    left = budget - sum(map(tokens, [question, *heads, *told, *led])) - 2 * count
    filler = Filler(rng)
    rows: list[list[Piece]] = []
    for i in range(count):
        body = filler.sentences(left // (count - i))
        left -= sum(map(tokens, body))
        line = [Piece(text) for text in body]
        for piece in (Piece(told[i], i == asked), Piece(led[i], i == other)):
            line.insert(rng.randint(0, len(line)), piece)
        rows += [[Piece(heads[i])], line]
    context, spans = join(rows)
    return Draft(context, spans, question, [f"{things[other]}, {names[count + other]}"])
