"""Typed settings: a wrong, missing or unknown one is told in one line that says what to give instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from eval.console.errors import UserError, nearest

Kind = TypeVar("Kind", bound="Section")


class Section(BaseModel):
    """Settings that belong together. A field's description completes "FIELD is VALUE; give ..."."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def as_tuple(value: Any) -> Any:
    if value is None or isinstance(value, tuple):
        return value
    return tuple(value) if isinstance(value, list) else (value,)


def _as_path(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("no path")
    return Path(value).expanduser()


LocalPath = Annotated[Path, BeforeValidator(_as_path)]
Texts = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)]  # one, or a list


def checked(kind: type[Kind], content: Mapping[str, Any], within: str = "") -> Kind:
    """The typed settings. `within` is where they stand, such as "model.".

    Raises UserError, which names the first wrong field, its value and what is allowed.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UserError(_line(kind, content, within, first["type"], first["loc"])) from error


def _line(
    kind: type[Section], content: Mapping[str, Any], within: str, wrong: str, where: tuple[int | str, ...]
) -> str:
    name, *rest = where
    field = _fields(kind).get(str(name))
    if field is None:
        known = {f"{within}{other}": None for other in _fields(kind)}
        return f"unknown setting '{within}{name}'{nearest(f'{within}{name}', known)}"
    if rest and isinstance(inner := field.annotation, type) and issubclass(inner, Section):
        return _line(inner, content[str(name)], f"{within}{name}.", wrong, tuple(rest))
    if wrong == "missing" and not rest:
        return f"{within}{name} is missing; give {_wanted(field)}"
    value = content[str(name)]
    quotes = "; in a YAML file a text of digits needs quotes" if _is_text(field.annotation) and _number(value) else ""
    return f"{within}{name} is {shown(value)}; give {_wanted(field)}{quotes}"


def _wanted(field: Any) -> str:
    """What to give: as described, or else one of the values."""
    return field.description or ", ".join(map(str, get_args(field.annotation)))


def _fields(kind: type[Section]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in kind.model_fields.items()}


def shown(value: Any) -> str:
    """A value as it is written in a setting: null, true, [1,2], 'text'."""
    if isinstance(value, str):
        return repr(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def texts(kind: type[Section], within: str = "") -> set[str]:
    """The names of all fields that hold a text, a path or texts."""
    found = set()
    for name, field in _fields(kind).items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found |= texts(field.annotation, f"{within}{name}.")
        elif _is_text(field.annotation):
            found.add(f"{within}{name}")
    return found


def _is_text(annotation: Any) -> bool:
    leaves = set(_leaves(annotation))
    return bool(leaves & {str, Path}) and not leaves & {int, float, bool, dict}


def _leaves(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, UnionType, Annotated, tuple, list):
        return [leaf for one in get_args(annotation) for leaf in _leaves(one)]
    return [get_origin(annotation) or annotation]


def _number(value: Any) -> bool:
    return isinstance(value, int | float)
