"""Shows a report on this machine while runs go on, building it anew when answers arrive."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from eval.console.errors import UserError

EVERY = 3.0  # seconds between two looks at the answers
REST = 5.0  # times as long as a build takes is waited after it: the run needs the processor more


class Handler(SimpleHTTPRequestHandler):
    """Serves the folder's files to pages of this machine only, and never from a cache."""

    def do_GET(self) -> None:
        # Another site's name may be made to point here; its page must not read the answers.
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in ("localhost", "127.0.0.1"):
            self.send_error(403, "open the address that the command printed")
            return
        super().do_GET()

    def do_HEAD(self) -> None:
        self.send_error(405)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def list_directory(self, path: object) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is for what the report has to say."""


def serve(results: Path, root: Path, port: int, rebuild: Callable[[], None]) -> None:
    """Serve `root` on localhost until interrupted; `rebuild` is called when the answers in `results` have changed.

    Raises:
        UserError: the port is taken.
    """
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(root)))
    except (OSError, OverflowError) as error:
        raise UserError(f"port {port} cannot be used ({error}): choose another with --port") from error
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(results, rebuild, stop), daemon=True)
    watcher.start()
    print(f"http://localhost:{server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        stop.set()
        server.server_close()


def fingerprint(results: Path) -> int:
    """A number that changes when answers, selections or analyses do."""
    found = [path for part in ("*/*/*", "selections/*/*/*", "analysis/**") for path in results.glob(f"{part}/*.jsonl")]
    found += results.glob("analysis/**/*.csv")
    return hash(tuple(sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in found)))


def _watch(results: Path, rebuild: Callable[[], None], stop: threading.Event) -> None:
    seen, pause = fingerprint(results), EVERY
    while not stop.wait(pause):
        begun = time.monotonic()
        try:
            now = fingerprint(results)
            if now != seen:
                seen = now
                rebuild()
        except (UserError, OSError) as error:  # of a run in progress: the next look may find it well
            print(f"not rebuilt: {error}", file=sys.stderr)
        pause = max(EVERY, REST * (time.monotonic() - begun))
