"""Single files of the model hub's repositories, downloaded once into its cache."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def file(repository: str, name: str, *, endpoint: str | None = None, **options: Any) -> Path:
    """Download a file, or find it in the cache where the hub is out of reach.

    The hub's client asks six times within 23 s, since a network may be back by then. Where the hub's host has no
    address, that brings nothing: the cache alone is asked.

    Args:
        repository: such as zai-org/LongBench.
        name: the file's within it.
        endpoint: address of the hub, None for the environment's HF_ENDPOINT or the usual one.
        options: of `huggingface_hub.hf_hub_download`.

    Raises:
        ConnectionError: the host has no address and the cache has no copy. Otherwise what the client raises, whose
            errors differ by its edition.
    """
    # Some tenths of a second, which local files need not wait for.
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries; what fails in the end is told
    host = urlsplit(endpoint or constants.ENDPOINT).hostname or ""
    nowhere = not constants.HF_HUB_OFFLINE and has_no_address(host)
    try:
        return Path(hf_hub_download(repository, name, endpoint=endpoint, local_files_only=nowhere, **options))
    except LocalEntryNotFoundError as error:
        if not nowhere:
            raise
        raise ConnectionError(f"the name {host} has no address here, and the hub's cache has no copy") from error


def has_no_address(host: str) -> bool:
    """Whether a name server says for good that there is no such host.

    False where it may have an address in a moment, or where a proxy looks it up: macOS calls every name unknown while
    its network is down, Linux tells the two apart.
    """
    from urllib.request import getproxies  # with all of HTTP, which a start without the hub need not load

    if getproxies().keys() - {"no"} or sys.platform != "linux":
        return False
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        return error.errno == socket.EAI_NONAME
    return False
