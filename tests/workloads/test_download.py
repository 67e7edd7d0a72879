"""Downloads, archives and official files, against a real server on this machine that misbehaves on request."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from places import REPOSITORY

from accordion_bench.errors import UserError
from accordion_bench.workloads.datasets.archive import extract
from accordion_bench.workloads.datasets.download import Unavailable, download, locked
from accordion_bench.workloads.datasets.files import OfficialFiles

CONTENT = bytes(range(256)) * 2000  # 512 kB


class Server(ThreadingHTTPServer):
    """Serves `files`; the first part of the path says how."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"file": CONTENT}
        self.requests: list[tuple[str, str | None]] = []  # behaviour, Range header
        self.stopping = threading.Event()

    def url(self, behaviour: str, name: str = "file") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{behaviour}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        behaviour, name = self.path.strip("/").split("/")
        wanted = self.headers.get("Range")
        self.server.requests.append((behaviour, wanted))
        body = self.server.files[name]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and behaviour != "no-range" else 0
        if behaviour == "missing":
            self.send_error(404)
        elif start >= len(body):
            self.send_error(416)
        else:
            self._send(behaviour, body if behaviour != "wrong" else body[::-1], start)

    def _send(self, behaviour: str, body: bytes, start: int) -> None:
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if behaviour == "truncates" and start == 0:
            self.wfile.write(body[: len(body) // 2])
        elif behaviour == "stalls":
            if start == 0:
                self.wfile.write(body[: len(body) // 4])
                self.wfile.flush()
            self.server.stopping.wait(30)
        elif behaviour != "empty":
            self.wfile.write(body[start:])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test's output is pytest's."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.stopping.set()
    server.shutdown()
    thread.join()
    server.server_close()


def right(path: Path) -> str | None:
    """The check of most tests: the content, whole."""
    return None if path.read_bytes() == CONTENT else "wrong checksum"


def dead_url() -> str:
    """An address where nobody listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_address[1]
    return f"http://127.0.0.1:{port}/file"


def test_a_file_arrives_whole_and_under_its_own_name_only(server: Server, tmp_path: Path) -> None:
    download(tmp_path / "file", [server.url("good")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("bad", ["wrong", "missing", "empty"])
def test_a_bad_mirror_is_passed_over(server: Server, tmp_path: Path, bad: str) -> None:
    download(tmp_path / "file", [server.url(bad), server.url("good")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [behaviour for behaviour, _ in server.requests] == [bad, "good"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [("wrong", "wrong checksum"), ("missing", "HTTP 404"), ("empty", "broke off"), ("stalls", "stalled")],
)
def test_the_reason_of_a_failure_is_told_and_no_file_appears(
    server: Server, tmp_path: Path, bad: str, reason: str
) -> None:
    with pytest.raises(Unavailable, match=reason):
        download(tmp_path / "file", [server.url(bad)], right, timeout_s=0.3)
    assert not (tmp_path / "file").exists()


def test_a_stalled_mirror_is_left_for_the_next_one_which_continues(server: Server, tmp_path: Path) -> None:
    download(tmp_path / "file", [server.url("stalls"), server.url("good")], right, timeout_s=0.3)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests[-1][1] is not None


def test_dead_mirrors_mean_no_network(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^no network$"):
        download(tmp_path / "file", [dead_url(), dead_url()], right)


def test_a_truncated_body_is_continued_where_it_broke_off(server: Server, tmp_path: Path) -> None:
    download(tmp_path / "file", [server.url("truncates")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("truncates", None), ("truncates", f"bytes={len(CONTENT) // 2}-")]


def test_an_interrupted_call_is_continued_by_the_next(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(tmp_path / "file", [server.url("good")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("good", "bytes=1000-")]


def test_a_server_that_cannot_continue_starts_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(tmp_path / "file", [server.url("no-range")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("leftover", [b"not the beginning of it", CONTENT[::-1], CONTENT + b"more"])
def test_a_wrong_leftover_is_thrown_away(server: Server, tmp_path: Path, leftover: bytes) -> None:
    (tmp_path / "file.part").write_bytes(leftover)
    download(tmp_path / "file", [server.url("good")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_complete_leftover_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(tmp_path / "file", [server.url("good")], right)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_disk_that_refuses_is_one_clear_line(server: Server, tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from accordion_bench.workloads.datasets.download import download\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: download(Path(sys.argv[1]), [sys.argv[2]], lambda path: None)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "file"), server.url("good")],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout.startswith("UserError cannot write")
    assert "set dataset.root=DIR" in result.stdout


def test_a_root_that_is_no_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"dataset\.root=.*set dataset\.root=DIR"), locked(tmp_path / "file", "x"):
        pass


# Archives and official files

TEXTS = {"a": b"first file\n" * 100, "b": b"second file\n" * 100}


def tar_of(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zip_file:
        for name, content in members.items():
            zip_file.writestr(name, content)
    return buffer.getvalue()


def official(server: Server, archive: bytes, pinned: bool = True) -> OfficialFiles:
    """The two texts as a data set whose archive the server has; pinned: the archive has a checksum of its own."""
    server.files["set.tar.gz"] = archive
    return OfficialFiles(
        title="Set",
        folder="set",
        digests={name: hashlib.md5(text).hexdigest() for name, text in TEXTS.items()},
        algorithm="md5",
        archive="set.tar.gz",
        archive_digest=hashlib.md5(archive).hexdigest() if pinned else None,
        mirrors=(server.url("good", "set.tar.gz"),),
        instead="do without",
    )


@pytest.mark.parametrize("pack", [tar_of, zip_of])
@pytest.mark.parametrize("pinned", [True, False])
def test_files_are_downloaded_unpacked_and_checked(server: Server, tmp_path: Path, pack, pinned: bool) -> None:
    files = official(server, pack({f"set/{name}": text for name, text in TEXTS.items()} | {"set/c": b""}), pinned)
    root = tmp_path / "new" / "root"
    assert files.prepare(root, verify=True).startswith("Set: 2 files verified in")
    assert dict(files.contents(root, verify=True)) == TEXTS
    assert sorted(path.name for path in (root / "set").iterdir()) == ["a", "b"]
    assert sorted(os.listdir(root)) == [".set.lock", "set", "set.tar.gz"]  # no scratch folder stays


def test_files_that_are_there_need_neither_archive_nor_writing(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "set" / name).write_bytes(text)
    official(server, b"").ensure(tmp_path, verify=True)
    assert os.listdir(tmp_path) == ["set"]
    assert server.requests == []


def test_an_archive_that_is_there_is_not_downloaded(server: Server, tmp_path: Path) -> None:
    files = official(server, tar_of({f"set/{name}": text for name, text in TEXTS.items()}))
    (tmp_path / "set.tar.gz").write_bytes(server.files["set.tar.gz"])
    files.ensure(tmp_path, verify=True)
    assert dict(files.contents(tmp_path, verify=True)) == TEXTS
    assert server.requests == []


def test_another_archive_is_refused_or_accepted_with_a_warning(server: Server, tmp_path: Path) -> None:
    files = official(server, b"")
    (tmp_path / "set.tar.gz").write_bytes(tar_of({"set/a": b"other", "set/b": TEXTS["b"]}))
    with pytest.raises(UserError, match=r"set\.tar\.gz is not the official archive .*dataset\.verify=false"):
        files.ensure(tmp_path, verify=True)
    with pytest.warns(UserWarning, match="without verification"):
        files.ensure(tmp_path, verify=False)
    with pytest.raises(UserError, match=r"a is not the official file .*delete it.*dataset\.verify=false"):
        dict(files.contents(tmp_path, verify=True))
    with pytest.warns(UserWarning, match=r"Set: a in .* not the official files"):
        assert dict(files.contents(tmp_path, verify=False))["a"] == b"other"


def test_without_files_and_network_the_message_says_what_to_do(server: Server, tmp_path: Path) -> None:
    files = replace(official(server, b""), mirrors=(dead_url(),))
    with pytest.raises(UserError) as error:
        files.ensure(tmp_path, verify=True)
    assert str(error.value) == (
        f"Set is not in {tmp_path}/ and cannot be downloaded (no network). "
        "Put the official archive set.tar.gz there, set dataset.root=DIR, or do without."
    )


def test_a_mirror_with_another_archive_is_named(server: Server, tmp_path: Path) -> None:
    files = official(server, tar_of({"set/a": b"other", "set/b": TEXTS["b"]}), pinned=False)
    with pytest.raises(UserError, match=r"cannot be downloaded \(127\.0\.0\.1:\d+: MD5 .* expected"):
        files.ensure(tmp_path, verify=False)  # what comes from the network is checked in any case


UNSAFE = {
    "parent": tar_of({"set/../../escaped": b"x", "set/a": b"", "set/b": b""}),
    "absolute": tar_of({"/escaped": b"x", "set/a": b"", "set/b": b""}),
    "zip": zip_of({"../escaped": b"x", "set/a": b"", "set/b": b""}),
    "link": tar_of({"set/b": b""}, links={"set/a": "../../escaped"}),
}


@pytest.mark.parametrize("archive", UNSAFE.values(), ids=UNSAFE)
def test_no_archive_writes_outside_its_folder(server: Server, tmp_path: Path, archive: bytes) -> None:
    root = tmp_path / "deep" / "root"
    root.mkdir(parents=True)
    (root / "set.tar.gz").write_bytes(archive)
    with pytest.raises(UserError, match="unsafe member"):
        official(server, archive).ensure(root, verify=True)
    assert sorted(os.listdir(root)) == [".set.lock", "set.tar.gz"]
    assert os.listdir(tmp_path) == ["deep"]


@pytest.mark.parametrize("keep", [0, 10, 150])
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_a_truncated_archive_is_one_clear_line(tmp_path: Path, pack, keep: int) -> None:
    archive = tmp_path / "set"
    archive.write_bytes(pack({"a": os.urandom(2000)})[:keep])
    with pytest.raises(UserError, match=r"is damaged|does not contain") as error:
        extract(archive, {"a": tmp_path / "a"})
    assert "\n" not in str(error.value)


def test_only_one_process_downloads(server: Server, tmp_path: Path) -> None:
    archive = tar_of({f"set/{name}": text for name, text in TEXTS.items()})
    server.files["set.tar.gz"] = archive
    script = (
        "import sys; from pathlib import Path; from accordion_bench.workloads.datasets.files import OfficialFiles\n"
        "files = OfficialFiles('Set', 'set', eval(sys.argv[1]), 'md5', 'set.tar.gz', None, (sys.argv[2],), '')\n"
        "files.prepare(Path(sys.argv[3]), True)"
    )
    digests = official(server, archive).digests
    arguments = [script, repr(digests), server.url("good", "set.tar.gz"), str(tmp_path)]
    processes = [subprocess.Popen([sys.executable, "-c", *arguments], cwd=REPOSITORY) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(server.requests) == 1
