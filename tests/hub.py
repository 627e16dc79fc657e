"""A local HTTP server that answers as the model hub does, since tests reach no other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40  # of everything it serves


@contextmanager
def serving(content: Callable[[str], bytes | None]) -> Iterator[tuple[str, list[str]]]:
    """Serve what `content` makes of a path, 404 where it makes nothing: the address, and the paths sent so far."""
    sent: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = content(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            if body is None:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("ETag", f'"{sha256(body or b"").hexdigest()}"')
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET" and body is not None:
                sent.append(self.path)
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()
