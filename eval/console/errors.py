"""The one exception that stands for a user's mistake, how a command tells it, and the hint for a misspelt name."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import NoReturn

_CHOICE = re.compile(r"argument (\S+): invalid choice: (['\"])(.*)\2 \(choose from (.*)\)", re.DOTALL)
_LISTED = r"[^\s',]+"  # with quotation marks around each, as Python's editions have it, or without


class UserError(Exception):
    """Wrong input, told in one line: what was given, which limit it broke, what to do instead.

    As text it is one line of printable characters, whatever a record or a file name in it holds.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class Parser(argparse.ArgumentParser):
    """Tells a wrong command line as every other mistake is told: in one line, with exit status 1."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError, which `command` prints."""
        _, unknown, words = message.partition("unrecognized arguments: ")
        word = words.split()[0] if words else ""
        if unknown and word.startswith("-"):
            known = [option for action in self._actions for option in action.option_strings]
            message = f"unknown option {word.split('=')[0]}{nearest(word.split('=')[0], known)}"
        elif unknown:
            message = f"{words} is one word too many"
        elif wrong := _CHOICE.fullmatch(message):
            message = f"unknown {wrong[1]} {wrong[3]!r}{nearest(wrong[3], re.findall(_LISTED, wrong[4]))}"
        raise UserError(f"{message} (see {self.prog} --help)")


def command(parser: Parser, arguments: Sequence[str] | None, work: Callable[[argparse.Namespace], None]) -> int:
    """Parse a command line, do its work and return the exit status: 1 with one line on stderr for a UserError
    or a reader of the output that has ended, else 0.

    arguments: None for those of the process. Commands that compose a configuration have
    `eval.console.mistakes.command`.
    """
    try:
        work(parser.parse_args(arguments))
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        print("error: what reads the output has ended", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's own flush at its end fails again
        return 1
    return 0


def printable(text: str) -> str:
    """Return text with an escape for every character that would move a terminal's cursor or end the line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def nearest(word: str, choices: Iterable[str], most: int | None = None) -> str:
    """Return '; did you mean a, b?' for the closest of `choices`, or the whole list if none is close.

    most: of a list, name no more than so many, and say how many there are besides.
    """
    known = sorted(choices)
    if close := get_close_matches(word, known, n=3, cutoff=0.5):
        return f"; did you mean {', '.join(close)}?"
    more = f" and {len(known) - most} more" if most is not None and len(known) > most else ""
    return f"; known: {', '.join(known[:most])}{more}" if known else ""
