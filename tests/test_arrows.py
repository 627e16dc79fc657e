"""run.py -> eval -> echokv <- baselines: nobody imports against an arrow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "echokv": {"echokv", "torch", "transformers", "tokenizers", "safetensors", "jaxtyping", "flash_attn", "triton"},
    "baselines": {"baselines", "echokv", "torch", "jaxtyping", "kvpress"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield path.parent.name if node.level else (node.module or "").split(".")[0]


def imported(package: Path) -> dict[str, set[str]]:
    """What each module of a package imports of it, in functions and for types alone included."""
    files = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    edges: dict[str, set[str]] = {}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                source = resolve_name("." * node.level + (node.module or ""), name.rpartition(".")[0])
                inner = [f"{source}.{alias.name}" for alias in node.names]
                wanted = [one if one in files else source for one in inner]
            else:
                continue
            known = {one if one in files else f"{one}.__init__" for one in wanted}
            edges.setdefault(name, set()).update(known & files.keys())
    return edges


def circle(package: Path) -> list[str]:
    """Modules of a package that import each other in a circle; or none."""
    return first_circle(imported(package))


def first_circle(edges: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def rooms(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between the packages within a package; a command at its top is a room of its own."""
    found: dict[str, set[str]] = {}
    for name, others in edges.items():
        own = ".".join(name.split(".")[:2])
        found.setdefault(own, set()).update({".".join(other.split(".")[:2]) for other in others} - {own})
    return found


@pytest.mark.parametrize("package", ["echokv", "baselines", "eval"])
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    assert not circle(ROOT / package)


def test_no_rooms_import_each_other_in_a_circle() -> None:
    edges = rooms(imported(ROOT / "eval"))
    assert {"eval.inputs", "eval.planning", "eval.console"} <= edges["eval.answering"]
    assert not first_circle(edges)


def test_a_circle_of_rooms_is_found() -> None:
    one_way = {"p.a.x": {"p.b.y"}, "p.b.z": {"p.c.w"}}
    assert not first_circle(rooms(one_way))
    assert set(first_circle(rooms({**one_way, "p.b.y": {"p.a.v"}}))) == {"p.a", "p.b"}


@pytest.mark.parametrize(
    "back",
    [
        "import package.a",
        "from package import a",
        "from . import a",
        "from .a import A",
        "from package.a import A",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package.a import A",
        "def late():\n    from package import a",
    ],
)
def test_a_circle_of_any_kind_is_found(back: str, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from package.a import A\n")
    (package / "a.py").write_text("from package import b\n")
    (package / "b.py").write_text("import sys\n")
    assert not circle(package)
    (package / "b.py").write_text(back)
    assert set(circle(package)) == {"package.a", "package.b"}


def test_importing_the_library_imports_no_transformers() -> None:
    """Its models take longer than torch itself."""
    code = "import sys, echokv; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0


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
    for name in ("run.py", "eval/console/errors.py", "eval/console/mistakes.py", "eval/answering/neighbours.py"):
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
