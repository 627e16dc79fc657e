"""What went wrong by the user's doing, told in one line; Hydra's own complaints among it."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from eval.console import jobs, signals
from eval.console.conf import CONF
from eval.console.errors import UserError, nearest
from eval.console.overrides import quoted


class Failed(BaseException):
    """Carries an error past Hydra, which prints the command line in front of any Exception."""


@contextmanager
def past_hydra() -> Iterator[None]:
    """Turn an error in the block into Failed, but not in a sweep, whose launcher collects its tasks' errors."""
    try:
        jobs.begin()
        yield
    except Exception as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            raise
        raise Failed from error


def command(app: Callable[[], None]) -> int:
    """Run a command of Hydra's and return its exit status: 1 with one line for a mistake, 130 or 143 for a signal."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come here, not to Hydra's printer
    sys.argv[1:] = quoted(sys.argv[1:])
    try:
        with signals.caught():
            app()
    except signals.Interrupted as error:
        print(f"{error}: {signals.GO_ON}", file=sys.stderr)
        return error.status
    except (Exception, Failed) as error:
        if (message := explain(error)) is None:
            raise
        message = jobs.failures(error, explain) or message
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0


def explain(error: BaseException) -> str | None:
    """Return one line for a user's mistake, None for any other error."""
    if isinstance(error, Failed) and error.__cause__:
        return explain(error.__cause__)
    if isinstance(error, UserError):
        return str(error)
    if type(error).__module__.startswith("submitit.") or 'detect "srun"' in str(error):
        return _of_a_sweep(error)
    if isinstance(error, BrokenPipeError):
        return "what reads the output has ended"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; choose a writable folder with results=PATH"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _unknown_choice(error.missing_cfg_file)
    if isinstance(error, OverrideParseException):
        return f"cannot read '{error.override}': write name=value, and lists as name=[a,b]"
    if isinstance(error, ConfigCompositionException) and (message := _of_an_override(error)):
        return message
    if isinstance(error, InterpolationResolutionError) and (wanted := re.search(r"key '([^']+)' not", str(error))):
        return f"{error.full_key} is taken from {wanted[1]}, which no chosen YAML sets: give {error.full_key}=VALUE"
    if isinstance(error, ValueError) and "Config group override" in str(error):
        return "model, data and preset are each chosen by the name of a YAML: null is none, write model=smollm2"
    if isinstance(error, HydraException | OmegaConfBaseException):
        return " ".join(str(error).split())
    return None


def _of_a_sweep(error: BaseException) -> str:
    """What Hydra's launcher for Slurm and local tasks, a package of its own, says in many lines."""
    text = str(error)
    if 'detect "srun"' in text:
        return "there is no Slurm here (no srun): use hydra/launcher=local"
    if ended := re.search(r"Job (\S+) .*with path (\S+)\s+has not produced any output \(state: ([^)]*)\)", text):
        return (
            f"task {ended[1]} ended without a result (state {ended[3]}), the others go on; logs are in "
            f"{Path(ended[2]).parent}. Stored answers are kept: the same command does what is missing"
        )
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), type(error).__name__)


def _unknown_choice(path: str) -> str:
    """path: GROUP/NAME of a YAML that is not there; of a model or data also GROUP/FOLDER, of a model GROUP/HUB_NAME."""
    group, _, name = path.rpartition("/")
    if name.startswith("submitit_"):
        return "sweeps over Slurm or local tasks need hydra-submitit-launcher: pip install hydra-submitit-launcher"
    if group.startswith("model/"):
        given = path.removeprefix("model/")
        return f"model={given}: model= names a YAML of conf/model; write model.name={given} for a folder or hub name"
    if group.startswith("data/"):
        given = path.removeprefix("data/")
        return f"data={given}: data= names a YAML of conf/data; write data=jsonl data.path={given} for records of yours"
    return f"unknown {group} '{name}'{nearest(name, (path.stem for path in (CONF / group).glob('*.yaml')))}"


def _of_an_override(error: ConfigCompositionException) -> str | None:
    """What is wrong with a name=value that Hydra can read."""
    text = str(error)
    if several := re.search(r"(Ambiguous value for argument|Sweep parameters) '(.+)'", text):
        return _several(several[2], listed=several[1].startswith("Ambiguous"))
    if not (key := re.search(r"'([^']+)'", text)):
        return None
    add = re.search(r"To append to your config use (\+.+)", text)
    # The part of the name that is missing: methods.NAME of a method, methods.NAME.FIELD of a field.
    missing = getattr(error.__cause__, "full_key", None) or ""
    return _unknown_key(key[1].split("=")[0].lstrip("+~"), missing, add[1] if add else "")


def _several(override: str, listed: bool) -> str:
    """listed: whether the values are a plain list such as 128,256, not Hydra's choice(...) or range(...)."""
    key, _, values = override.partition("=")
    if not listed or key in _groups() - {"method"}:
        return f"'{override}' are several values: add -m, which makes one job of each"
    return f"'{override}' are several values: write {key}=[{values}], or add -m for one job each"


def _groups() -> set[str]:
    """The groups of settings that are chosen by name; conf/subsets is read by the subsets' own module."""
    return {path.name for path in CONF.iterdir() if path.is_dir()} - {"hydra", "subsets"}


def _unknown_key(key: str, missing: str, add: str) -> str:
    group, _, field = key.partition(".")
    if not field:
        known = {str(name) for name in OmegaConf.load(CONF / "config.yaml")} - {"defaults", "hydra"} | _groups()
        deeper = [] if get_close_matches(key, known, cutoff=0.8) else _one_level_down(key)
        return f"unknown setting '{key}'" + (f"; did you mean {', '.join(deeper)}?" if deeper else nearest(key, known))
    if group == "methods" and add and missing.count(".") > 1:
        return f"unknown setting '{key}': the method's YAML has no such field; if its class has it, {add} adds it"
    if group == "methods":
        return f"unknown setting '{key}': the method is not chosen by method="
    # An analysis is described by an experiment; every other group of settings has a folder of its own.
    folder = "experiment" if group == "analysis" else group
    having = [path.stem for path in sorted((CONF / group).glob("*.yaml")) if field in _content(path)]
    other = f"; {group}={having[0]} has it" if group in ("data", "cache") and having else ""
    return f"unknown setting '{key}': no such field in the chosen conf/{folder}/*.yaml{other}"


def _one_level_down(field: str) -> list[str]:
    """The settings of a group or a method that have this name: model.device of device."""
    found = [f"{group}.{field}" for group in ("model", "record", "data", "preset") if field in _fields(group)]
    of_methods = (item for path in sorted((CONF / "method").glob("*.yaml")) for item in _content(path).items())
    return found or [f"methods.{name}.{field}" for name, own in of_methods if field in own][:3]


def _fields(group: str) -> set[str]:
    whole: Any = OmegaConf.load(CONF / "config.yaml")
    return set(whole.get(group) or {}).union(*map(_content, (CONF / group).glob("*.yaml"))) - {
        "model",
        "defaults",
        "name",
    }


def _content(path: Path) -> dict[str, Any]:
    """The fields of a YAML, without the class that it names."""
    found: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {name: value for name, value in found.items() if name != "_target_"} if isinstance(found, dict) else {}
