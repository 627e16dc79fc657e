"""Filler prose: a small grammar whose sentences carry no fact that a question could ask for."""

import re
from random import Random

from eval.synthetic.layout import tokens
from eval.synthetic.words import FIRST, LAST, POOLS

_SLOT = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")

# The protagonist {who} and the {home} town stay the same through a paragraph, every other slot is drawn anew.
_OPENINGS = (
    "In {month}, {who} the {trade} opened a {adjective} {place} near the {place} of {home}.",
    "{who} had lived in {home} for {number} years before the {place} was closed.",
    "On a {adjective} {day} in {month}, {who} walked from the {place} to the {place} in {home}.",
    "Nobody in {home} knew why {who} kept a {color} {object} in the {place}.",
    "The {place} of {home} was {adjective}, and {who} liked it for that.",
    "When the {weather} came to {home}, {who} was busy in the {place}.",
    "{who} learned {craft} from a {adjective} {trade} who came to {home} in {month}.",
    "After {number} weeks of {weather}, {who} left the {place} and returned to {home}.",
)
_MIDDLES = (
    "The {trade} asked for {number} pieces of {material} and a {adjective} {object}.",
    "A {color} {animal} slept under the {object} until the {weather} was over.",
    "It took {number} days to {verb} the {adjective} {object}.",
    "Every {day} the {trade} brought {food} and {food} to the {place}.",
    "The {object} was made of {material}, with a {color} {object} beside it.",
    "{extra} from {town} {past} the {object} and asked for nothing in return.",
    "Most visitors came for the {food}, but some came for the {craft}.",
    "There was {weather} in the morning and {weather} in the evening.",
    "A {adjective} {trade} from {town} wrote about the {place} in a letter.",
    "The road to {town} was closed because of the {weather}.",
    "{extra} thought that the {color} {object} was too {adjective} for the {place}.",
    "The {animal} and the {animal} shared the {adjective} {place} for {number} nights.",
    "They {past} {number} boxes of {food} before the {weather} began.",
    "In {town} a {trade} would have used {material} instead of {material}.",
    "The price of {food} rose in {month}, and the {trade} was not pleased.",
    "{who} found a {adjective} {object} behind the {place}.",
    "{who} never spoke about the {object} again.",
    "Some said that {craft} was a {adjective} habit, others said it was {adjective}.",
    "The {place} had {number} windows and a door of {material}.",
    "A {trade} and a {trade} talked about {craft} until {day}.",
    "The children of {home} called the {animal} {adjective} and gave it {food}.",
    "Under the {object} lay a {color} map of the {place}.",
    "{extra} the {trade} preferred {material} to {material} for such a {object}.",
    "By {month} the {place} was full of {food}.",
    "The smell of {food} filled the {place} from {day} to {day}.",
    "No one {past} the {object}, although the {trade} had asked twice.",
    "A letter from {town} said that the {weather} had damaged the {place}.",
    "{who} {past} a {object} for a {trade} from {town}.",
    "The old song about the {animal} and the {food} was heard at the {place}.",
    "Both the {place} and the {place} stood empty in {month}.",
)
_SHORT = (
    "The {animal} was {adjective}.",
    "Then the {weather} came.",
    "{extra} laughed.",
    "The {object} was {color}.",
    "It smelled of {food}.",
)
_PARAGRAPH = (5, 8)
_MISSES = 24


def draw(pattern: str, rng: Random, **fixed: str) -> str:
    """Fill each {slot} of `pattern` with the word in `fixed`, else a drawn one; mend 'a' to 'an'."""
    text = _SLOT.sub(lambda slot: fixed.get(slot[1]) or rng.choice(POOLS[slot[1]]), pattern)
    return _ARTICLE.sub(r"\1n ", text[0].upper() + text[1:])


def people(rng: Random, count: int) -> list[str]:
    """Return `count` different full names; first names repeat only when there are more people than names."""
    firsts, lasts = rng.sample(FIRST, len(FIRST)), rng.sample(LAST, len(LAST))
    rounds = (divmod(i, len(firsts)) for i in range(count))
    return [f"{firsts[place]} {lasts[(place + turn) % len(lasts)]}" for turn, place in rounds]


class Filler:
    """Writes paragraphs of filler to measure; no sentence of one instance ever comes twice."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._seen: set[str] = set()

    def paragraphs(self, budget: int) -> list[list[str]]:
        """Return paragraphs (lists of sentences) whose joined text has at most `budget` estimated tokens.

        The shortfall is a few tokens: near the end ever shorter sentences are tried.
        """
        rows: list[list[str]] = []
        while budget > 0:
            goal = self._rng.randint(*_PARAGRAPH)
            row = self.sentences(budget - 1, goal)
            if not row:
                break
            budget -= sum(map(tokens, row)) + 1
            rows.append(row)
        return rows

    def sentences(self, budget: int, most: int | None = None) -> list[str]:
        """Return one paragraph: at most `most` sentences and at most `budget` estimated tokens."""
        fixed = {"who": self._rng.choice(POOLS["extra"]), "home": self._rng.choice(POOLS["town"])}
        row: list[str] = []
        misses = 0
        while misses < _MISSES and (most is None or len(row) < most):
            patterns = (_OPENINGS if not row else _MIDDLES) if misses < _MISSES // 2 else _SHORT
            sentence = draw(self._rng.choice(patterns), self._rng, **fixed)
            cost = tokens(sentence)
            if cost > budget or sentence in self._seen:
                misses += 1
                continue
            misses = 0
            self._seen.add(sentence)
            row.append(sentence)
            budget -= cost
        return row
