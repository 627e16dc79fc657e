"""A digest of the code behind a class or function: its module, its bases' modules, and what they import from outside.

What is installed (the standard library, site-packages) and the harness's own `echokv` and `eval` stay out: a version
number stands for them. Comments, docstrings and formatting do not count.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from echokv.installed import LIBRARY, ROOT

OURS = (LIBRARY, ROOT / "eval")
POLICIES = ROOT / "baselines"  # of a wheel within the library
STANDARD = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib"))
INSTALLED = {"site-packages", "dist-packages"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules_of(kinds: Iterable[type]) -> dict[str, Path]:
    """The modules from outside that classes are defined in, with all that those import from outside: name -> file.

    An installed package counts only where a class itself comes from it.
    """
    own = list(kinds)
    return reached({kind.__module__ for one in own for kind in one.__mro__}, {kind.__module__ for kind in own})


def reached(modules: Iterable[str], own: Iterable[str]) -> dict[str, Path]:
    """Modules, those from outside among them, with all that these import from outside: name -> file.

    own: of whose packages even an installed one counts.
    """
    named = {module.split(".")[0] for module in own}
    found: dict[str, Path] = {}
    waiting = [*modules, *named]
    while waiting:
        name = waiting.pop()
        top = name.split(".")[0]
        # The package first: to find a module in one that does not count would import it.
        if name in found or not all(_counts(one, installed=top in named) for one in (top, name)):
            continue
        file = _file(name)
        if file is None:
            continue
        found[name] = file
        waiting += _imported(name, file)
        waiting += [name.rpartition(".")[0]] if "." in name else []  # a package's own __init__ runs first
    return found


def digest(files: Iterable[tuple[str, Path]]) -> str | None:
    """A digest of modules by name and content, None of none."""
    parts = [f"{name} {_content(name, file)}" for name, file in sorted(files)]
    return sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else None


def of_file(path: Path) -> str:
    """A digest of a file's content."""
    return f"sha256:{sha256(path.read_bytes()).hexdigest()[:16]}"


def _file(name: str) -> Path | None:
    """The file of a module; None of a built-in one, a namespace or what cannot be found."""
    with suppress(ImportError, ValueError, AttributeError):
        loaded = sys.modules.get(name)
        spec = loaded.__spec__ if loaded is not None else find_spec(name)
        origin = getattr(loaded, "__file__", None) or (spec.origin if spec and spec.has_location else None)
        return Path(origin).resolve() if origin else None
    return None


def _counts(name: str, installed: bool) -> bool:
    """Whether a module is from outside, or a namespace, which has no file. installed: whether those packages count."""
    file = _file(name)
    if file is None:
        return name not in sys.builtin_module_names
    if file.is_relative_to(POLICIES):
        return True
    if any(file.is_relative_to(place) for place in OURS):
        return False
    if INSTALLED & set(file.parts):
        return installed
    return not any(file.is_relative_to(place) for place in STANDARD)


def _imported(name: str, file: Path) -> Iterator[str]:
    """What a module imports, wherever in it; of `from a import b` both a and a.b, which may be a module too."""
    tree = _parsed(name, file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _parsed(name: str, file: Path) -> ast.Module | None:
    """The syntax tree of a module, its relative imports as the absolute ones that they stand for."""
    try:
        tree = ast.parse(file.read_bytes()) if file.suffix == ".py" else None
    except (OSError, SyntaxError, ValueError):
        return None
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ImportFrom) and node.level:
            with suppress(ImportError):  # from beyond the outermost package: it stays as it is
                node.module, node.level = resolve_name("." * node.level + (node.module or ""), package), 0
    return tree


def _content(name: str, file: Path) -> str:
    tree = _parsed(name, file)
    text = repr(_plain(tree)).encode("utf-8", "backslashreplace") if tree else file.read_bytes()
    return sha256(text).hexdigest()


def _plain(node: Any) -> Any:
    """A syntax tree as tuples, the same in every version of Python: what is empty in a node is left out."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, ast.AST):
        return node
    values = {name: getattr(node, name, None) for name in node._fields}
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
        values["body"] = node.body[1:]
    return type(node).__name__, [(name, _plain(value)) for name, value in values.items() if value not in (None, [])]
