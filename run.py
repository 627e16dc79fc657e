"""python run.py model=mistral method=echokv budget=128: answer, store, print the table."""

import os
import sys
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from eval.mistakes import explain

CONF = str(Path(__file__).resolve().parent / "conf")


@hydra.main(version_base="1.3", config_path=CONF, config_name="config")
def app(config: DictConfig) -> None:
    settings: Any = OmegaConf.to_container(config, resolve=True)
    from eval.runner import run  # after Hydra: `--help` must not wait for torch

    run(settings)


def main() -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach the lines below instead of Hydra's printer
    try:
        app()
    except KeyboardInterrupt:
        print("interrupted: stored answers are kept, the same command goes on from here", file=sys.stderr)
        return 130
    except Exception as error:
        if (message := explain(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
