"""Blobs: verified on arrival, downloaded once, not to be poisoned."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from enroot_py.errors import BusyError, DigestMismatchError, NotFoundError, StoreError
from enroot_py.image.digest import parse_digest
from enroot_py.image.manifest import Descriptor
from enroot_py.store.blobs import BlobStore, blob_path

DATA = b"layer bytes " * 1000


def describe(data: bytes, algorithm: str = "sha256") -> Descriptor:
    digest = parse_digest(f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}")
    return Descriptor("application/vnd.oci.image.layer.v1.tar", digest, len(data))


def fill(store: BlobStore, data: bytes = DATA, *, private: bool = False) -> Descriptor:
    descriptor = describe(data)
    with store.create(descriptor, private=private) as writer:
        assert writer is not None
        writer.write(data)
    return descriptor


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "cache"))


def own_path(store: BlobStore, descriptor: Descriptor) -> Path:
    return Path(blob_path(store.folders.layouts[0], descriptor.digest))


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_blob_appears_whole_under_its_digest(store: BlobStore, algorithm: str) -> None:
    descriptor = describe(DATA, algorithm)
    with store.create(descriptor, private=False) as writer:
        assert writer is not None
        for start in range(0, len(DATA), 1000):
            writer.write(DATA[start : start + 1000])
            assert not own_path(store, descriptor).exists()
    with store.open(descriptor) as file:
        assert file.read() == DATA
    assert os.listdir(store.folders.partial) == []
    assert own_path(store, descriptor).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (DATA[:-1], "ended after 11999 of 12000 bytes"),
        (DATA + b"x", "is longer than the 12000 bytes"),
        (DATA[:-1] + b"\0", "has other contents"),
        (b"", "ended after 0"),
    ],
)
def test_wrong_bytes_never_get_the_name_and_are_not_kept(
    store: BlobStore, sent: bytes, message: str
) -> None:
    descriptor = describe(DATA)
    with (
        pytest.raises(DigestMismatchError, match=message),
        store.create(descriptor, private=False) as writer,
    ):
        assert writer is not None
        writer.write(sent)
    assert not store.has(descriptor)
    assert os.listdir(store.folders.partial) == []


def test_an_interrupted_download_is_continued(store: BlobStore) -> None:
    descriptor = describe(DATA)
    with (
        pytest.raises(KeyboardInterrupt),
        store.create(descriptor, private=False) as writer,
    ):
        assert writer is not None
        writer.write(DATA[:5000])
        raise KeyboardInterrupt
    assert not store.has(descriptor)
    with store.create(descriptor, private=False) as writer:
        assert writer is not None
        assert writer.offset == 5000
        writer.write(DATA[5000:])
    assert store.read(descriptor) == DATA


@pytest.mark.parametrize("left", [b"wrong" * 100, DATA + b"too long"])
def test_what_an_earlier_download_left_wrong_can_be_restarted(
    store: BlobStore, left: bytes
) -> None:
    descriptor = describe(DATA)
    partial = Path(store.folders.partial, str(descriptor.digest).replace(":", "-"))
    partial.write_bytes(left)
    with store.create(descriptor, private=False) as writer:
        assert writer is not None
        writer.restart()
        writer.write(DATA)
    assert store.read(descriptor) == DATA


def test_an_empty_blob_is_a_blob(store: BlobStore) -> None:
    descriptor = describe(b"")
    with store.create(descriptor, private=False) as writer:
        assert writer is not None
    assert store.read(descriptor) == b""


def test_put_and_read_small_blobs(store: BlobStore) -> None:
    descriptor = describe(b"{}")
    store.put(descriptor, b"{}", private=False)
    store.put(descriptor, b"{}", private=False)
    assert store.read(descriptor) == b"{}"
    with pytest.raises(NotFoundError):
        store.read(describe(b"other"))


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: os.mkfifo(path),
        lambda path: os.mknod(path, 0o140600),
        lambda path: path.write_bytes(DATA[:-1]),
        lambda path: path.write_bytes(DATA + b"x"),
        lambda path: path.write_bytes(b""),
    ],
    ids=["link", "fifo", "socket", "short", "long", "empty"],
)
def test_planted_entries_are_refused_and_replaced(store: BlobStore, plant: object) -> None:
    descriptor = describe(DATA)
    assert callable(plant)
    plant(own_path(store, descriptor))
    assert not store.has(descriptor)
    fill(store)
    assert own_path(store, descriptor).read_bytes() == DATA


def test_a_link_to_the_right_bytes_is_no_blob(store: BlobStore, tmp_path: Path) -> None:
    descriptor = describe(DATA)
    (tmp_path / "elsewhere").write_bytes(DATA)
    own_path(store, descriptor).symlink_to(tmp_path / "elsewhere")
    assert not store.has(descriptor)
    assert (tmp_path / "elsewhere").read_bytes() == DATA


def test_own_blobs_that_others_can_write_to_are_verified_again(store: BlobStore) -> None:
    descriptor = fill(store)
    path = own_path(store, descriptor)
    path.chmod(0o666)
    assert store.has(descriptor)
    path.write_bytes(b"x" * len(DATA))
    assert not store.has(descriptor)
    assert not path.exists()


@pytest.mark.root
def test_what_another_user_planted_is_verified_from_a_copy(store: BlobStore) -> None:
    descriptor = describe(DATA)
    path = own_path(store, descriptor)
    for mode, data, usable in [
        (0o644, DATA, True),
        (0o644, b"x" * len(DATA), False),
        (0o666, DATA, False),
        (0o664, DATA, False),
    ]:
        path.write_bytes(data)
        path.chmod(mode)
        os.chown(path, 12345, 12345)
        if not usable:
            assert not store.has(descriptor)
            assert not path.exists()
            continue
        with store.open(descriptor) as file:
            path.write_bytes(b"exchanged" * 5)  # what its owner may do at any time
            assert file.read() == DATA
        path.unlink()


def test_of_many_processes_one_downloads(store: BlobStore, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tests.store.test_blobs import BlobStore, DATA, describe\n"
        "store = BlobStore(sys.argv[1])\n"
        "with store.create(describe(DATA), private=False) as writer:\n"
        "    if writer is not None:\n"
        "        print('downloading', flush=True)\n"
        "        for byte in range(0, len(DATA), 100):\n"
        "            writer.write(DATA[byte:byte + 100])\n"
        "assert store.read(describe(DATA)) == DATA\n"
    )
    command = [sys.executable, "-c", code, store.folders.path]
    root = str(Path(__file__).resolve().parents[2])
    environ = {**os.environ, "PYTHONPATH": root}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environ) for _ in range(8)
    ]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert b"".join(said) == b"downloading\n"


def test_a_download_that_was_killed_is_taken_over(store: BlobStore) -> None:
    code = (
        "import os, sys\n"
        "from tests.store.test_blobs import BlobStore, DATA, describe\n"
        "with BlobStore(sys.argv[1]).create(describe(DATA), private=False) as writer:\n"
        "    writer.write(DATA[:7000])\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", code, store.folders.path]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": root}, cwd=root, check=False)
    assert killed.returncode == -9
    descriptor = describe(DATA)
    assert not store.has(descriptor)
    with store.create(descriptor, private=False) as writer:
        assert writer is not None
        assert writer.offset == 7000
        writer.write(DATA[7000:])
    assert store.read(descriptor) == DATA


def test_waiting_for_another_download_can_be_called_off(store: BlobStore) -> None:
    descriptor = describe(DATA)
    with store.create(descriptor, private=False) as writer:
        assert writer is not None
        other = BlobStore(store.folders.path)
        with (
            pytest.raises(BusyError),
            other.create(descriptor, private=False, cancelled=lambda: True),
        ):
            pytest.fail("the block ran")
        writer.write(DATA)


def test_a_blob_that_was_delivered_is_not_waited_for_until_its_readers_end(
    store: BlobStore,
) -> None:
    descriptor = describe(DATA)
    partial = os.path.join(store.folders.partial, str(descriptor.digest).replace(":", "-"))
    outcome: list[object] = []

    def take() -> None:
        with store.create(descriptor, private=False) as writer:
            outcome.append(writer)

    with open(partial, "wb") as delivered:
        fcntl.flock(delivered, fcntl.LOCK_EX)
        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(0.1)
        delivered.write(DATA)
        delivered.flush()
        os.rename(partial, own_path(store, descriptor))
        # From here on it is read, by whoever delivered it, for as long as he likes.
        fcntl.flock(delivered, fcntl.LOCK_SH)
        thread.join(timeout=60)
        assert outcome == [None]


def test_threads_take_in_different_blobs_at_once(store: BlobStore) -> None:
    threads = [
        threading.Thread(target=fill, args=(store, bytes([number]) * 50_000))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(store.has(describe(bytes([number]) * 50_000)) for number in range(16))


def test_a_cache_made_here_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = BlobStore(str(tmp_path / "a" / "cache"))
    finally:
        os.umask(before)
    assert not store.folders.is_shared
    for folder, _, _ in os.walk(tmp_path / "a"):
        assert os.stat(folder).st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o772])
def test_a_cache_that_everybody_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(StoreError, match="written to by everybody") as caught:
        BlobStore(str(tmp_path / "cache"))
    assert "ENROOT_CACHE_PATH" in caught.value.hint
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.parametrize("where", ["cache", "cache/oci", "cache/oci/blobs", "cache/images"])
def test_files_in_place_of_folders_are_named(tmp_path: Path, where: str) -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with pytest.raises(StoreError, match=f"{path} is not a folder"):
        BlobStore(str(tmp_path / "cache"))


def test_a_cache_that_another_process_makes_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    look = os.path.lexists

    def look_late(asked: str) -> bool:
        path.mkdir(exist_ok=True)
        return look(asked)

    monkeypatch.setattr(os.path, "lexists", look_late)
    BlobStore(str(path))


@pytest.mark.parametrize("where", ["oci", "oci/blobs/sha256", "partial", "images", "extracted"])
def test_links_in_place_of_folders_are_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "victim").mkdir()
    path = tmp_path / "cache" / where
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="is not a folder"):
        BlobStore(str(tmp_path / "cache"))
    assert os.listdir(tmp_path / "victim") == []


@pytest.mark.root
def test_a_cache_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 12345, 12345)
    with pytest.raises(StoreError, match="belongs to another user"):
        BlobStore(str(tmp_path / "cache"))


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o1777, 0o2770])
def test_a_shared_cache_shares_public_blobs_and_nothing_else(open_folder: Path, mode: int) -> None:
    cache = open_folder / "cache"
    cache.mkdir()
    os.chown(cache, 0, 5000)
    cache.chmod(mode)
    secret = b"s" * 5000
    code = (
        "import os, sys\n"
        "os.setgroups([5000]); os.setgid(5000); os.setuid(int(sys.argv[2]))\n"
        "os.umask(0o077)\n"
        "from tests.store.test_blobs import *\n"
        "store = BlobStore(sys.argv[1])\n"
        "public, private = describe(DATA), describe(b's' * 5000)\n"
        "print(store.has(public), store.has(private))\n"
        "if not store.has(public): fill(store)\n"
        "if not store.has(private): fill(store, b's' * 5000, private=True)\n"
        "assert store.has(public) and store.has(private)\n"
        "print(store.folders.private)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    said = []
    for uid in (5001, 5002):
        command = [sys.executable, "-c", code, str(cache), str(uid)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": root}, cwd=root, stdout=subprocess.PIPE,
            text=True, check=True,
        )  # fmt: skip
        said.append(done.stdout.split())
    assert said[0] == ["False", "False", str(cache / "user.5001")]
    assert said[1] == ["True", "False", str(cache / "user.5002")]
    shared = Path(blob_path(str(cache / "oci"), describe(DATA).digest))
    assert (shared.stat().st_uid, shared.stat().st_mode & 0o777) == (5001, 0o644)
    assert not Path(blob_path(str(cache / "oci"), describe(secret).digest)).exists()
    for uid in (5001, 5002):
        assert (cache / f"user.{uid}").stat().st_mode & 0o077 == 0
