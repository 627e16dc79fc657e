"""Files of a hub that answers, one whose host is unknown, and one that may answer in a moment."""

import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from eval.inputs.hub import file
from tests.hub import serving

NOWHERE = "http://hub.invalid"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are slept, none of which passes; no proxy is set."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"no": "localhost"})
    return slept


def look_up(monkeypatch: pytest.MonkeyPatch, error: int) -> list[str]:
    """Let names be looked up in vain; returns those asked for. Numbers are addresses by themselves."""
    plain, asked = socket.getaddrinfo, []

    def looked_up(host: Any, *given: Any, **more: Any) -> Any:
        if "invalid" not in str(host):
            return plain(host, *given, **more)
        asked.append(str(host))
        raise socket.gaierror(error, "in vain")

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return asked


@pytest.fixture
def answering() -> Iterator[str]:
    with serving(lambda path: b"{}" if path == "/org/model/resolve/main/config.json" else None) as (address, _):
        yield address


def test_a_host_without_an_address_is_not_asked_again(
    tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = look_up(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(ConnectionError, match=r"the name hub\.invalid has no address here, and .* no copy"):
        file("org/model", "config.json", endpoint=NOWHERE, cache_dir=tmp_path)
    assert not waits
    assert asked == ["hub.invalid"]


def test_the_cache_answers_for_it(
    tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch, answering: str
) -> None:
    found = file("org/model", "config.json", endpoint=answering, cache_dir=tmp_path)
    assert found.read_text() == "{}"
    look_up(monkeypatch, socket.EAI_NONAME)
    assert file("org/model", "config.json", endpoint=NOWHERE, cache_dir=tmp_path) == found
    assert not waits


@pytest.mark.parametrize("why", ["no answer yet", "a proxy", "macOS"])
def test_what_may_answer_in_a_moment_is_asked_again(
    why: str, tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up(monkeypatch, socket.EAI_AGAIN if why == "no answer yet" else socket.EAI_NONAME)
    if why == "a proxy":
        monkeypatch.setattr(urllib.request, "getproxies", lambda: {"http": "http://127.0.0.1:9"})
    if why == "macOS":
        monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(OSError, match="Hub"):
        file("org/model", "config.json", endpoint=NOWHERE, cache_dir=tmp_path)
    assert sum(waits) > 10, "as the hub's client does"


def test_where_the_hub_is_switched_off_no_name_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = look_up(monkeypatch, socket.EAI_NONAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="Hub"):
        file("org/model", "config.json", endpoint=NOWHERE, cache_dir=tmp_path)
    assert not asked
