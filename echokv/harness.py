"""The harness in your own code: `from echokv.harness import evaluate`.

`evaluate` is `eval.answering.frame.evaluate`, wherever that lies. Importing this raises UsageError where the packages
of echokv[harness] are missing.
"""

from importlib import import_module

from echokv.installed import reach

reach("harness")
evaluate = import_module("eval.answering.frame").evaluate

__all__ = ["evaluate"]
