"""Whether a field's value is of the type it is annotated with: values come from YAML files and command lines."""

from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from echokv.errors import UsageError


def check(made: Any) -> None:
    """Raise UsageError if a dataclass has a field whose value is not of the field's type."""
    kinds = get_type_hints(type(made))
    for field in fields(made):
        value, kind = getattr(made, field.name), kinds[field.name]
        if not fits(value, kind):
            raise UsageError(f"{type(made).__name__}.{field.name} is {value!r}; it must be {words(kind)}")


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
