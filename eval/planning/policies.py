"""Which policy answers: all its fields, the code behind them, and what a plan must know of it before it is made.

All this is found by making the press once, which imports torch, and kept on disk under the state of every file that
it came from: while none of them changes, a plan needs neither the press nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate

from echokv.errors import UsageError
from echokv.fields import fits
from echokv.installed import LIBRARY, ROOT
from eval.console.errors import UserError
from eval.console.foreign import blamed
from eval.keeping import cache, digests

if TYPE_CHECKING:
    from echokv.press import Press

# Raise it with every change of echokv/ after which some press keeps other tokens, or a session decodes others, than
# before (rounding aside), and say here what changed: answers of other versions are kept, and not served.
# 1: the first version that identities hold.
SCORING = 1
RESERVED = {"name", "_target_", "code", "scoring"}  # of an identity: no field may be named so


@dataclass(frozen=True, eq=False)
class Policy:
    """A method with one value for each field. Everything but `press` is known without torch.

    title: the class's name. variant: what tells it from others of the same method in one run, such as "steps=4".
    settings: as composed, with `_target_`. fields: all fields, those of the class's defaults too.
    code: digest of its code outside the library, None if it has none. least_budget, takes_budget, files: the press's.
    """

    name: str
    title: str
    variant: str
    settings: dict[str, Any]
    fields: dict[str, Any]
    code: str | None
    least_budget: int
    takes_budget: bool
    files: dict[str, str]

    @property
    def label(self) -> str:
        return f"{self.name} {self.variant}".rstrip()

    @property
    def identity(self) -> dict[str, Any]:
        """What of it answers depend on."""
        about = {"name": self.name, "_target_": self.settings["_target_"], "code": self.code, "scoring": SCORING}
        return {**about, **self.fields}

    @cached_property
    def press(self) -> Press:
        """The policy itself. Raises UserError for settings that it refuses."""
        return _made(self.name, self.settings)

    def check(self, budget: int) -> None:
        """Raise UserError for a budget below the smallest that the method is defined for."""
        if budget < self.least_budget:
            raise UserError(f"budget {budget} is too small for {self.title}: it needs at least {self.least_budget}")


@dataclass(frozen=True)
class Given:
    """A policy whose press is at hand: of one that nothing is stored of, no more is asked."""

    press: Press


def policies(name: str, settings: Mapping[str, Any]) -> list[Policy]:
    """A method's policies: one, or one for each combination of values where fields are given several.

    settings: its part of the configuration, `_target_` and fields.

    Raises UserError for a class that is not there or is no Press, and for fields that it refuses.
    """
    # Two copies of the repository would else take each other's place in the cache.
    key = json.dumps([str(ROOT), name, settings], sort_keys=True, default=str)
    return _kept(cache.read("policies", key)) or _found(name, dict(settings), key)


def _kept(entry: Any) -> list[Policy] | None:
    """The policies of an entry whose files are all as they were, and are still those that their names lead to."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        same = all(_stamp(path) == stamp for path, stamp in entry["files"].items())
        if same and all(_origin(top) == origin for top, origin in entry["origins"].items()):
            return [Policy(**one) for one in entry["policies"]]
    return None


def _found(name: str, settings: dict[str, Any], key: str) -> list[Policy]:
    """Make each press, and keep what is known of it beside the state of the files that this depends on."""
    kind = _class(name, str(settings["_target_"]))
    made: list[Policy] = []
    modules: dict[str, Path] = {}
    for variant, chosen in variants(kind, settings):
        press = _made(name, chosen)
        own = digests.modules_of(_kinds(press))
        modules |= own
        about = (variant, chosen, fields_of(f"method {name}", press), digests.digest(own.items()))
        with blamed(f"method {name}"):
            least = press.least_budget
        made.append(Policy(name, kind.__name__, *about, least, kind.takes_budget, dict(press.files)))
    library = [*LIBRARY.rglob("*.py"), *Path(__file__).parent.glob("*.py"), Path(digests.__file__)]
    read = [Path(path).absolute() for one in made for path in one.files.values()]
    files = {str(path): _stamp(str(path)) for path in [*modules.values(), *library, *read]}
    origins = {top: _origin(top) for top in {module.split(".")[0] for module in modules}}
    cache.write("policies", key, {"files": files, "origins": origins, "policies": [asdict(one) for one in made]})
    return made


def _class(name: str, target: str) -> type[Press]:
    from echokv.press import Press

    try:
        kind: type[Any] = get_class(target)
    except Exception as error:  # whatever importing it may raise
        cause = error.__cause__ or error  # Hydra's own error only says that there was one
        why = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        raise UserError(f"method {name}: there is no class {target} ({why})") from error
    if not issubclass(kind, Press):  # told before anything is called
        raise UserError(f"method {name}: {target} is not a Press")
    return kind


def _made(name: str, settings: Mapping[str, Any]) -> Press:
    try:
        press: Press = instantiate(settings, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__ or error
        lines = str(cause).splitlines()
        raise UserError(str(cause) if isinstance(cause, UsageError) else f"method {name}: {lines[0]}") from error
    return press


def variants(kind: type[Any], settings: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings with one value for each field, and the words that tell them apart."""
    hints = get_type_hints(kind)
    swept = [key for key, value in settings.items() if key in hints and _is_sweep(value, hints[key])]
    for values in product(*(_distinct(settings[key]) for key in swept)):
        chosen = dict(zip(swept, values, strict=True))
        yield " ".join(f"{key}={_word(value)}" for key, value in chosen.items()), {**settings, **chosen}


def _is_sweep(value: Any, kind: Any) -> bool:
    """Whether a value is no value of the type, but a list of some: [4, 8] for a number, [[3], [5]] for a list."""
    several = isinstance(value, list) and bool(value) and not fits(value, kind)
    return several and all(fits(one, kind) for one in value)


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def fields_of(who: str, made: Any) -> dict[str, Any]:
    """All fields as JSON has them, with the digest of a file in place of its path.

    made: a press or a codec, which `who` names. Raises UserError for names that an identity has for itself, and for
    files that are not there.
    """
    found = {field.name: _plain(getattr(made, field.name)) for field in fields(made)}
    try:
        found |= {field: digests.of_file(Path(path)) for field, path in made.files.items()}
    except UsageError as error:
        raise UserError(f"{who}: {error}") from error
    except OSError as error:
        raise UserError(f"{who}: cannot read {error.filename}: {error.strerror}") from error
    if taken := RESERVED & set(found):
        raise UserError(f"{who}: {type(made).__name__} has a field '{taken.pop()}': give it another name")
    hints = get_type_hints(type(made))
    return {key: float(value) if hints[key] is float else value for key, value in found.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):  # a press within a press
        about = {"_target_": f"{type(value).__module__}.{type(value).__qualname__}"}
        return about | {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def _kinds(value: Any) -> list[type]:
    """The class of a press, and of the presses within it."""
    if isinstance(value, list | tuple):
        return [kind for one in value for kind in _kinds(one)]
    if not is_dataclass(value) or isinstance(value, type):
        return []
    return [type(value), *(kind for field in fields(value) for kind in _kinds(getattr(value, field.name)))]


def _stamp(path: str) -> list[int] | None:
    try:
        return cache.stamp(Path(path))
    except OSError:
        return None


def _origin(top: str) -> str | None:
    """Where a top-level module would be imported from now; nothing is imported."""
    with suppress(ImportError, ValueError):
        if spec := find_spec(top):
            return spec.origin or str(list(spec.submodule_search_locations or ()))
    return None
