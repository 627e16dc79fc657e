"""python run.py model=mistral method=echokv budget=128: answer, store, print the table."""

import os
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from eval import mistakes, signals

CONF = str(Path(__file__).resolve().parent / "conf")


@hydra.main(version_base="1.3", config_path=CONF, config_name="config")
def app(config: DictConfig) -> None:
    from eval.runner import run  # after Hydra: `--help` must not wait for torch

    with mistakes.past_hydra():
        run(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]


def main() -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come here, not to Hydra's printer
    try:
        with signals.caught():
            app()
    except signals.Interrupted as error:
        print(f"{error}: {signals.GO_ON}", file=sys.stderr)
        return error.status
    except (Exception, mistakes.Failed) as error:
        if (message := mistakes.explain(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
