"""A run's manifest.json: all that its answers depend on, by whose digest the folder is named.

It is written once, with the first answer, and refused where it is not what the folder's name says.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from eval.console.errors import UserError

FORMAT = 1


def digest(value: Any) -> str:
    """Eight hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def write(folder: Path, identity: dict[str, Any], shown: dict[str, Any]) -> None:
    """Put a run's manifest into its folder if there is none."""
    if not (path := folder / "manifest.json").exists():
        write_whole(path, {"format": FORMAT, "identity": identity, "shown": shown})


def check(folder: Path, identity: dict[str, Any]) -> None:
    """Raise UserError if the folder's manifest, where it has one, was written by another format or identity."""
    manifest = folder / "manifest.json"
    # Unlike Path.exists this is False for a name that is too long.
    if os.path.exists(manifest) and _read(manifest) != json.loads(json.dumps(identity)):
        raise UserError(_other(manifest))


def identity(folder: Path) -> dict[str, Any]:
    """Return what the answers in a run's folder depend on.

    Raises UserError for an unreadable manifest, another format, or settings that are not the folder's.
    """
    manifest = folder / "manifest.json"
    found = _read(manifest)
    if not folder.name.endswith(f"-{digest(found)}"):
        raise UserError(_other(manifest))
    return found


def shown(folder: Path) -> dict[str, Any]:
    """Names that a run's folder was given to be shown with its answers; none in folders of earlier versions."""
    with suppress(OSError, ValueError, AttributeError):
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("shown")
        return found if isinstance(found, dict) else {}
    return {}


def refuse_other_archive(folder: Path, identity: dict[str, Any]) -> None:
    """Raise UserError if answers to an archive of another SHA-256 lie beside a folder.

    An archive that changed between two runs or shards would split their answers over two folders.
    """
    own = identity.get("data")
    if not isinstance(own, dict) or "sha256" not in own:
        return
    for manifest in folder.parent.glob(f"{folder.name[:-8]}{'?' * 8}/manifest.json"):
        try:
            other = _read(manifest)
        except UserError:  # that folder's own affair
            continue
        data = other.get("data")
        if not isinstance(data, dict) or "sha256" not in data or data["sha256"] == own["sha256"]:
            continue
        if {**other, "data": {**data, "sha256": None}} == {**identity, "data": {**own, "sha256": None}}:
            raise UserError(
                f"the data archive is not the one that {manifest.parent} answers (another SHA-256): pin "
                "data.revision to the commit used there, or use another results= folder"
            )


def write_whole(path: Path, content: dict[str, Any]) -> None:
    """Put a complete file in place, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    scratch.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(scratch, path)


def _read(manifest: Path) -> dict[str, Any]:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        written, identity = content["format"], content["identity"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{manifest} is unreadable ({type(error).__name__}); use another results= folder") from error
    if written != FORMAT:
        raise UserError(
            f"{manifest.parent} was written in format {written}, this version writes format {FORMAT}: "
            "use another results= folder"
        )
    if not isinstance(identity, dict):
        raise UserError(f"{manifest} holds no settings; use another results= folder")
    return identity


def _other(manifest: Path) -> str:
    return f"{manifest} names other settings than its folder's hash; use another results= folder"
