"""Whether a field's value is of the type it is annotated with: values come from YAML files and command lines."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a field's type. Of types that no YAML value has, such as a callable, none is refused."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in parts
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is tuple and parts[1:] == (...,):
        return isinstance(value, list | tuple) and all(fits(one, parts[0]) for one in value)  # a YAML has lists alone
    if kind in (int, float):  # True is an int to Python
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind) if kind in (bool, str, NoneType) else True


def words(kind: Any) -> str:
    """A field's type as a message names it."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "null"}
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list, each {words(get_args(kind)[0])}"
    return names.get(kind) or " or ".join(words(part) for part in get_args(kind))
