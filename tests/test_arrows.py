"""run.py -> eval -> echokv <- baselines: nobody imports against an arrow."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "echokv": {"echokv", "torch", "transformers", "tokenizers", "jaxtyping", "flash_attn", "triton"},
    "baselines": {"baselines", "echokv", "torch", "jaxtyping"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_library_knows_no_harness(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        wrong = set(imports(path)) - ALLOWED[package] - sys.stdlib_module_names
        assert not wrong, f"{path} imports {wrong}"


def test_harness_imports_no_baseline() -> None:
    for path in [*(ROOT / "eval").rglob("*.py"), ROOT / "run.py"]:
        assert "baselines" not in set(imports(path)), path


def test_help_needs_no_torch() -> None:
    heavy = {"torch", "transformers", "echokv", "pandas", "datasets", "scipy"}
    for name in ("run.py", "eval/console/errors.py", "eval/console/mistakes.py"):
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        top = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        names = {name.split(".")[0] for name in _names(top)}
        assert not names & heavy, name


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
