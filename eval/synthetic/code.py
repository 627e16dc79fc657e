"""Code completion: the arguments of a call to a function that is defined far above."""

from random import Random

from eval.synthetic.layout import Draft, Piece, join, tokens
from eval.synthetic.words import ANIMAL, COLOR, FOOD, MATERIAL, OBJECT, SETTING, VERB

_PARAMETERS = (*FOOD, *MATERIAL, *COLOR, *ANIMAL)
_STATEMENTS = (
    "    total = {0} + {1} * {number}",
    "    if {0} > {1}:\n        return {2} - {number}",
    "    for step in range({0}):\n        print({1}, step + {number})",
    "    rest = max({0}, {2}) - {number}",
    "    print({2}, {0} - {number})",
)
_SHOWN = 2  # finished calls before the asked one
_NOTE = "# Each function is called once with all its arguments named."


def completion(rng: Random, budget: int, dispersion: float, facts: int) -> Draft:
    """A module of functions, then calls that name every argument with its default; the last call is cut open.

    The asked function is defined in the first half of the module, its signature is the evidence.
    """
    # An object comes again only when all have had their turn, so that names are easy to tell apart.
    verbs, things = rng.sample(VERB, len(VERB)), rng.sample(OBJECT, len(OBJECT))
    names = [f"{verbs[(i + j) % len(VERB)]}_{thing}" for i in range(len(VERB)) for j, thing in enumerate(things)]
    called = [_signature(rng) for _ in range(_SHOWN + 1)]
    calls = [f"{name}({arguments})" for name, arguments in zip(names, called, strict=False)]
    question = f"{names[_SHOWN]}("
    functions = [_function(rng, name, arguments) for name, arguments in zip(names, called, strict=False)]
    left = budget - sum(map(tokens, [_NOTE, *calls[:_SHOWN], question, *map("\n".join, functions)]))
    left -= 4 * len(calls)  # the lines between, and what names without a space before them cost
    for name in names[_SHOWN + 1 :]:
        body = _function(rng, name, _signature(rng))
        cost = tokens("\n".join(body)) + 2
        if cost > left:
            break
        left -= cost
        functions.append(body)
    asked = functions.pop(_SHOWN)
    rng.shuffle(functions)
    functions.insert(rng.randrange(1 + len(functions) // 2), asked)
    head = _constants(rng, left)
    rows = [[Piece(line) for line in head]] if head else []
    rows += [[Piece(body[0], body is asked), *map(Piece, body[1:])] for body in functions]
    rows.append([Piece(line) for line in (_NOTE, *calls[:_SHOWN])])
    context, spans = join(rows, between="\n")
    return Draft(context, spans, question, [called[_SHOWN] + ")"])


def _signature(rng: Random) -> str:
    return ", ".join(f"{name}={rng.randint(10, 99)}" for name in rng.sample(_PARAMETERS, 3))


def _function(rng: Random, name: str, arguments: str) -> list[str]:
    """Return the definition as its first line and its body."""
    words = [part.split("=")[0] for part in arguments.split(", ")]
    body = [
        statement.format(*rng.sample(words, 3), number=rng.randint(2, 9))
        for statement in rng.sample(_STATEMENTS, rng.randint(1, 3))
    ]
    return [f"def {name}({arguments}):", *body, f"    return {rng.choice(words)}"]


def _constants(rng: Random, budget: int) -> list[str]:
    """Return lines for the head of the module that use up `budget`."""
    lines: list[str] = []
    for name in rng.sample(SETTING, len(SETTING)):
        line = f"{name} = {rng.randint(2, 9)}"
        budget -= tokens(line) + 1
        if budget < 0:
            break
        lines.append(line)
    return lines
