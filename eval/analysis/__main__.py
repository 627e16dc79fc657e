"""python -m eval.analysis table1 model=smollm2 data=synthetic subset=synthetic: measure, store, write and print.

The first word names an experiment of conf/experiment that has an `analysis` section; the rest is as for run.py.
"""

import sys
from typing import TYPE_CHECKING, Any

import hydra
from omegaconf import DictConfig, OmegaConf

from echokv.installed import called
from eval.answering.neighbours import giving_way
from eval.console.conf import CONF
from eval.console.errors import UserError, nearest
from eval.console.mistakes import command, past_hydra

if TYPE_CHECKING:
    from eval.planning.settings import Settings


def names() -> list[str]:
    """The experiments that are analyses."""
    found = sorted((CONF / "experiment").glob("*.yaml"))
    return [path.stem for path in found if "analysis" in OmegaConf.load(path)]


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")  # type: ignore[untyped-decorator]
def app(config: DictConfig) -> None:
    from eval.planning.settings import settings  # after Hydra: `--help` must not wait for it

    with past_hydra(), giving_way():
        run(settings(config))


def run(settings: "Settings") -> None:
    """Run the analysis that the settings describe. Raises UserError where they describe none."""
    from eval.analysis.ablation import ablation  # after Hydra: `--help` must not wait for torch
    from eval.analysis.calibration import calibrate
    from eval.analysis.dispersion import dispersion
    from eval.analysis.forensics import forensics
    from eval.analysis.heads import heads
    from eval.analysis.overlap import table1
    from eval.analysis.positions import table2
    from eval.analysis.retention import table6
    from eval.analysis.settings import Dispersion, Heads, typed
    from eval.analysis.study import Study

    if settings.analysis is None:
        raise UserError(f"this experiment is no analysis; name one: {', '.join(names())}")
    options = typed(settings.analysis)
    if isinstance(options, Dispersion):  # these make one study of each level
        dispersion(settings, options)
        return
    if isinstance(options, Heads):
        heads(settings, options)
        return
    kinds: dict[str, Any] = {
        "table1": table1, "table2": table2, "table6": table6, "ablation": ablation, "forensics": forensics,
        "calibrate": calibrate,
    }  # fmt: skip
    kinds[settings.analysis["kind"]](Study.of(settings, options))


def start() -> None:
    """Put the first word into Hydra's form and begin. Raises UserError if it names no analysis."""
    known = names()
    if len(sys.argv) > 1 and "=" not in sys.argv[1] and not sys.argv[1].startswith("-"):
        if sys.argv[1] not in known:
            raise UserError(f"unknown analysis {sys.argv[1]!r}{nearest(sys.argv[1], known)}")
        sys.argv[1] = f"experiment={sys.argv[1]}"
    elif not any(word.startswith(("-", "experiment=")) for word in sys.argv[1:]):
        raise UserError(f"name an analysis first: {', '.join(known)}")
    app()


def of_model(name: str) -> None:
    """Begin an analysis that has a command of its own, whose first word is a model.

    Raises UserError if the first word names none.
    """
    words = sys.argv[1:]
    if not words or "=" in words[0].removeprefix("model=") or words[0].startswith("-"):
        raise UserError(f"name a model first: {called(name)} smollm2")
    sys.argv[1:] = [name, f"model={words[0].removeprefix('model=')}", *words[1:]]
    start()


def main() -> int:
    """Run the command line; returns the exit status."""
    return command(start)


if __name__ == "__main__":
    sys.exit(main())
