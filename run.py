"""python run.py model=mistral method=echokv budget=128: answer, store, print the table."""

import os
import sys
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from eval.errors import UserError
from eval.mistakes import explain


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def app(config: DictConfig) -> None:
    settings: Any = OmegaConf.to_container(config, resolve=True)
    from eval.runner import run  # after Hydra: `--help` must not wait for torch

    run(settings)


def main() -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach the lines below instead of Hydra's printer
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted: stored answers are kept, the same command goes on from here", file=sys.stderr)
        return 130
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
