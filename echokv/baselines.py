"""The other policies under a name of the library: `from echokv.baselines.snapkv import SnapKV`.

They are the files of the folder `baselines`, which a wheel keeps below `echokv/_harness`.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
_HOME = _HERE / "_harness"
__path__ = [str((_HOME if _HOME.is_dir() else _HERE.parent) / "baselines")]
