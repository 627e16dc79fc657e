"""python run.py model=mistral method=echokv budget=128: answer, store, print the table."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from eval.answering.neighbours import giving_way
from eval.console import mistakes

CONF = str(Path(__file__).resolve().parent / "conf")


@hydra.main(version_base="1.3", config_path=CONF, config_name="config")
def app(config: DictConfig) -> None:
    from eval.answering.runner import run  # after Hydra: `--help` must not wait for it
    from eval.planning.settings import settings

    with mistakes.past_hydra(), giving_way():
        run(settings(config))


def main() -> int:
    return mistakes.command(app)


if __name__ == "__main__":
    sys.exit(main())
