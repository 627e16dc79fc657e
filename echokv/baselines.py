"""The other policies under a name of the library: `from echokv.baselines.snapkv import SnapKV`.

They are the files of the folder `baselines`, which a wheel keeps below `echokv/_harness`.
"""

from echokv.installed import ROOT

__path__ = [str(ROOT / "baselines")]
