"""Answers that lie beside a run's and are not served to it, because code or weights have changed since."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from echokv.installed import called
from eval.console.errors import UserError
from eval.keeping import manifests
from eval.keeping.store import Store

HASH = re.compile(r"-[0-9a-f]{8}$")


def notes(stores: Iterable[Store], results: Path) -> Iterator[str]:
    """One line for each kind of change: which answers are old, and how to look at both."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for store in stores:
        if store.folder.exists():  # told when it was begun
            continue
        for folder, why in _older(store):
            found.setdefault(why, []).append((store.key.method, folder))
    for why, some in found.items():
        methods = ", ".join(dict.fromkeys(method for method, _ in some))
        folders = [folder for _, folder in some]
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        yield (
            f"{why.format(methods=methods)} since {folders[0]}{more} was answered: those answers are kept and not used "
            f"here; `{called('show')} --results {results}` shows both"
        )


def _older(store: Store) -> Iterator[tuple[Path, str]]:
    """Folders of the same method and budget whose settings are this store's but for its code or model."""
    own = store.key.identity
    for folder in sorted(store.folder.parent.glob(f"{HASH.sub('', store.folder.name)}-*")):
        if HASH.sub("", folder.name) != HASH.sub("", store.folder.name) or folder == store.folder:
            continue
        try:
            other = manifests.identity(folder)
        except UserError:  # that folder's own affair
            continue
        if why := _why(other, own):
            yield folder, why


def _why(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """What changed, None if other settings were asked for."""
    before, now = old.get("method"), new["method"]
    if not isinstance(before, dict) or not isinstance(old.get("model"), dict):
        return None
    if "scoring" not in before:  # an earlier version: less was held of every part
        asked = ("data", "protocol", "method")
        same = all(_agree(old.get(part), new[part]) for part in asked)
        return "what answers are known by has changed" if same else None
    parts = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    if parts == {"model"}:
        same = all(old["model"].get(key) == new["model"].get(key) for key in ("dtype", "attention"))
        return "the model's files have changed" if same else None
    changed = any(before.get(key) != now.get(key) for key in ("code", "scoring"))
    return "the code of {methods} has changed" if changed and parts == {"method"} else None


def _agree(old: Any, new: Any) -> bool:
    """Whether two parts of settings are the same in all that both hold."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(old[key] == new[key] for key in {*old} & {*new})
    return bool(old == new)
