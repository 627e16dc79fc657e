"""How what is kept is stored: the codec of the settings' `cache`, by which its answers are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate

from echokv.codecs import Codec
from echokv.errors import UsageError
from eval.console.errors import UserError
from eval.keeping import digests
from eval.planning.policies import fields_of, variants

# Raise it with every change of echokv/ after which some codec reads back other numbers than before, and say here what
# changed. 1: the first version.
CODING = 1
CHOICES = "choose cache=kivi, cache=kvquant, cache=kvquant_c or cache=none"


@dataclass(frozen=True, eq=False)
class Coding:
    """A codec with one value for each field.

    variant: what a row of it is called beside its method's name, such as "+ KIVI-2".
    """

    settings: dict[str, Any]
    variant: str = ""

    @cached_property
    def codec(self) -> Codec:
        """The codec itself. Raises UserError for settings that it refuses."""
        try:
            made: Codec = instantiate(self.settings, _convert_="all")
        except InstantiationException as error:
            cause = error.__cause__ or error
            said = str(cause) if isinstance(cause, UsageError) else f"cache: {str(cause).splitlines()[0]}"
            raise UserError(said) from error
        return made

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What of it answers depend on. Raises UserError for a file that is not there."""
        code = digests.digest(digests.modules_of([type(self.codec)]).items())
        about = {"name": self.codec.label, "_target_": self.settings["_target_"], "code": code, "coding": CODING}
        return {**about, **fields_of("cache", self.codec)}


def codings(settings: Mapping[str, Any]) -> list[Coding | None]:
    """The codecs of the settings: one, or one for each combination of values where fields are given several.

    None stores everything as it is. Raises UserError for a class that is no codec, and for fields that it refuses.
    """
    if not settings:
        return [None]
    target = str(settings.get("_target_"))
    try:
        kind: type[Any] = get_class(target)
    except Exception as error:  # whatever importing it may raise
        raise UserError(f"cache._target_: there is no class {target}; {CHOICES}") from error
    if not issubclass(kind, Codec):
        raise UserError(f"cache._target_: {target} is no Codec; {CHOICES}")
    found: list[Coding | None] = []
    for words, chosen in variants(kind, dict(settings)):
        codec = Coding(chosen).codec
        if codec.plain:  # once, whatever its other fields: they change nothing
            found += [None] if None not in found else []
            continue
        label = codec.label
        # Of several, the label tells the bits apart; whatever else differs is said.
        more = " ".join(word for word in words.split() if not word.startswith("bits="))
        one = Coding(chosen, f"+ {label} {more}".rstrip())
        one.identity  # noqa: B018  # a file that is not there is told of before the model is looked for
        found.append(one)
    return found
