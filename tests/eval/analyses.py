"""Running an analysis in this process and looking at what it wrote."""

from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd

from eval.analysis import __main__ as program
from eval.analysis.settings import typed
from eval.analysis.study import Study
from tests.test_configs import composed


def analyse(name: str, settings: list[str], *more: str) -> None:
    program.run(composed(f"experiment={name}", *settings, *more))


def studied(name: str, settings: list[str]) -> Study[Any]:
    """An analysis of the settings of an experiment."""
    chosen = composed(f"experiment={name}", *settings)
    assert chosen.analysis is not None
    return Study.of(chosen, typed(chosen.analysis))


def read(root: Path, name: str) -> pd.DataFrame:
    (file,) = root.rglob(f"{name}.csv")
    return pd.read_csv(file)


def drawn(root: Path, name: str) -> None:
    """There is a figure and it is not blank."""
    (png,) = root.rglob(f"{name}.png")
    image = matplotlib.image.imread(png)[..., :3]
    assert 0.01 < float(np.mean(image < 0.9)) < 0.6
    (pdf,) = root.rglob(f"{name}.pdf")
    assert pdf.read_bytes().startswith(b"%PDF")
