"""Errors of code that is not ours, such as a method of the user's own, told with the line that raised them."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from echokv.installed import LIBRARY, ROOT
from eval.console.errors import UserError

STDLIB = Path(sysconfig.get_path("stdlib"))


@contextmanager
def blamed(who: str, *through: type[Exception]) -> Iterator[None]:
    """Turn an error of the user's code in the block into a UserError: whose, what it says, and the line it came from.

    through: errors that have a meaning of their own and pass, as UserError does. So does one that no line of the
    user's had a part in: it is ours, and its traceback is wanted.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (UserError, *through)) or (place := _place(error)) is None:
            raise
        said = " ".join(str(error).split())
        raise UserError(f"{who}: {type(error).__name__}: {said or 'no message'} ({place})") from error


def _place(error: Exception) -> str | None:
    """The deepest line that the user wrote, None if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if _users(file)]
    if not own:
        return None
    file, line = own[-1]
    return f"{file}, line {line}: {linecache.getline(file, line).strip()}"


def _users(file: str) -> bool:
    """Whether code is not Python's, an installed package's, the library's or this harness's."""
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    others = (STDLIB, LIBRARY, ROOT / "eval", ROOT / "run.py")
    return not (installed or file.startswith("<") or any(path.is_relative_to(other) for other in others))
