"""A model hub on the loopback interface: the routes that the real hub's client asks, over one real folder.

Large files are redirected to another host name, as the real hub redirects to its storage. Requests are kept in
`log`; the attributes make the hub refuse, break connections or stall.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "loopback/tiny-wan"
PIECE = 1 << 20


class Hub:
    """Serves `folder` as `REPO` at `COMMIT` until it is closed.

    Args:
        folder: what the repository holds.
        cache: the home of the hub's client, shared by the processes that get `environment`.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        self.token: str | None = None
        self.gated = False
        self.cuts: list[int] = []
        """Bytes after which the next answers that are longer break off."""
        self.stall_after: int | None = None
        self.stalled, self.resume = threading.Event(), threading.Event()
        self.corrupt = False
        self.log: list[tuple[str, str, Mapping[str, str]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """A process environment that knows this hub alone: no proxy, no token, homes of its own."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            "HOME": str(self.cache),
            "FV_HOME": str(self.cache / "fv"),
            "HF_HOME": str(self.cache / "hf"),
            "HF_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "*",
        }

    @property
    def hub_cache(self) -> Path:
        return self.cache / "hf" / "hub"

    def fetched(self) -> list[str]:
        """Paths of the files whose bytes were asked for, in order."""
        return [path for method, path, _ in self.log if method == "GET" and not path.startswith("/api/")]

    def files(self) -> dict[str, Path]:
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in found}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.log.append(
            (self.command, path, {name.lower(): value for name, value in self.headers.items()})
        )
        if path.startswith("/storage/"):
            return self._large(self.hub.folder / path.removeprefix("/storage/"))
        if refusal := self._refusal():
            return self._send(*refusal, b"")
        if path in (f"/api/models/{REPO}", f"/api/models/{REPO}/revision/{COMMIT}"):
            return self._send(200, {"Content-Type": "application/json"}, self._listing())
        prefix = f"/{REPO}/resolve/{COMMIT}/"
        file = self.hub.files().get(path.removeprefix(prefix)) if path.startswith(prefix) else None
        if file is not None:
            return self._resolve(file)
        code = "RevisionNotFound" if f"/{REPO}/" in path else "RepoNotFound"
        return self._send(404, {"X-Error-Code": code}, b"")

    def _refusal(self) -> tuple[int, dict[str, str]] | None:
        have = self.headers.get("Authorization")
        if self.hub.gated:
            return 403, {"X-Error-Code": "GatedRepo"}
        if self.hub.token is None or have == f"Bearer {self.hub.token}":
            return None
        if have is None:
            return 401, {"X-Error-Code": "RepoNotFound"}
        return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}

    def _listing(self) -> bytes:
        siblings = []
        for name, path in self.hub.files().items():
            entry: dict[str, object] = {
                "rfilename": name,
                "size": path.stat().st_size,
                "blobId": _git_id(path),
            }
            if _is_large(path):
                entry["lfs"] = {"sha256": _sha256(path), "size": path.stat().st_size, "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode()

    def _resolve(self, file: Path) -> None:
        facts = {"X-Repo-Commit": COMMIT}
        if not _is_large(file):
            return self._send(200, facts | {"ETag": f'"{_git_id(file)}"'}, file.read_bytes())
        storage = f"http://localhost:{self.hub.port}/storage/{file.relative_to(self.hub.folder).as_posix()}"
        facts |= {"X-Linked-Etag": f'"{_sha256(file)}"', "X-Linked-Size": str(file.stat().st_size)}
        return self._send(302, facts | {"Location": storage}, b"")

    def _large(self, file: Path) -> None:
        content = file.read_bytes()
        if self.hub.corrupt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self._stream(content[start:])

    def _stream(self, content: bytes) -> None:
        cut = self.hub.cuts.pop(0) if self.hub.cuts and len(content) > self.hub.cuts[0] else None
        for sent in range(0, len(content), PIECE):
            if cut is not None and sent >= cut:
                self.close_connection = True
                return
            if self.hub.stall_after is not None and sent >= self.hub.stall_after:
                self.hub.stalled.set()
                self.hub.resume.wait()
            self.wfile.write(content[sent : sent + PIECE])

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _is_large(path: Path) -> bool:
    return path.suffix in (".safetensors", ".bin")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git_id(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def make_folder(folder: Path, *, vocabulary: int) -> None:
    """A small checkpoint as diffusers and transformers write it, and files beside it that no card reads.

    The text encoder takes 128 bytes per word of the vocabulary.
    """
    # Late and untyped: the hub itself needs neither, and the classes carry no annotations.
    diffusers: Any = importlib.import_module("diffusers")
    transformers: Any = importlib.import_module("transformers")
    sizes = {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "text_dim": 32,
        "ffn_dim": 64,
        "num_layers": 1,
    }
    transformer = diffusers.WanTransformer3DModel(rope_max_seq_len=32, **sizes)
    transformer.save_pretrained(folder / "transformer", max_shard_size="40KB")
    vae = diffusers.AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)
    vae.save_pretrained(folder / "vae")
    sizes = {"vocab_size": vocabulary, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 1, "num_heads": 4}
    encoder = transformers.UMT5EncoderModel(transformers.UMT5Config(**sizes))
    encoder.save_pretrained(folder / "text_encoder")
    diffusers.UniPCMultistepScheduler().save_pretrained(folder / "scheduler")
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer_config.json").write_text("{}")
    (folder / "model_index.json").write_text('{"_class_name": "WanPipeline"}')
    (folder / "README.md").write_text("# tiny")
    (folder / "text_encoder" / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "transformer" / "diffusion_pytorch_model.fp16-00001-of-00002.safetensors").write_bytes(
        b"variant"
    )
    (folder / "vae" / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"variant")
