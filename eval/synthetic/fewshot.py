"""Few-shot classification: what a class is called is drawn for each record, so only the examples tell it."""

from random import Random

from eval.synthetic.layout import TAIL, Draft, Piece, join, tokens
from eval.synthetic.prose import draw
from eval.synthetic.words import POOLS

# The pool of a topic's words: what the questions call it, and what its class may be called.
_TOPICS = {
    "animal": ("animal", ("Animal kingdom", "Animal life", "About animals")),
    "food": ("food", ("Food and drink", "Food store", "About food")),
    "color": ("color", ("Color and paint", "Color theory", "About colors")),
    "weather": ("weather", ("Weather report", "Weather and sky", "About weather")),
    "trade": ("job", ("Job market", "Job and career", "About jobs")),
    "town": ("town", ("Town and country", "Town map", "About towns")),
    "material": ("material", ("Material goods", "Material science", "About materials")),
    "month": ("month", ("Month and season", "Month by month", "About months")),
    "craft": ("hobby", ("Hobby and leisure", "Hobby club", "About hobbies")),
    "object": ("tool", ("Tool box", "Tool and machine", "About tools")),
}
_QUESTIONS = (  # the topic comes last, close to the type: a small model has to see that it decides
    "Is {mark} a {adjective} {topic}?",
    "Did {extra} ever speak of {mark} as a {topic}?",
    "Would {extra} call {mark} a {adjective} {topic}?",
    "Why is {mark} such a {adjective} {topic}?",
    "Who said that {mark} was a {adjective} {topic}?",
    "When did {mark} become a {adjective} {topic}?",
    "How did {extra} learn that {mark} is a {topic}?",
)
_MISSES = 24


def classification(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """Questions with their types; the examples of the asked type are the evidence."""
    labels = {topic: rng.choice(names) for topic, (_, names) in _TOPICS.items()}
    asked = rng.choice(list(labels))
    question = f"Question: {_ask(rng, asked)}\nType:"
    budget -= tokens(question)
    seen = {question}
    others = {topic: label for topic, label in labels.items() if topic != asked}
    tail = _shots(rng, min(TAIL, budget // 3), others, seen)
    head = _shots(rng, budget - sum(tokens(text) + 1 for _, text in tail), labels, seen)
    context, spans = join(([Piece(text, topic == asked)] for topic, text in head + tail), after="\n")
    return Draft(context, spans, question, [labels[asked]], sorted(labels.values()))


def _shots(rng: Random, budget: int, labels: dict[str, str], seen: set[str]) -> list[tuple[str, str]]:
    """Return (topic, example) pairs that use up `budget`; every topic comes before any comes again."""
    shots: list[tuple[str, str]] = []
    misses = 0
    while misses < _MISSES:
        for topic in rng.sample(list(labels), len(labels)):
            text = f"Question: {_ask(rng, topic)}\nType:"
            cost = tokens(text) + tokens(labels[topic]) + 1
            if text in seen or cost > budget:
                misses += 1
                continue
            misses = 0
            seen.add(text)
            budget -= cost
            shots.append((topic, f"{text} {labels[topic]}"))
    return shots


def _ask(rng: Random, topic: str) -> str:
    text = rng.choice(_QUESTIONS).replace("{topic}", _TOPICS[topic][0])
    return draw(text, rng, mark=rng.choice(POOLS[topic]))
