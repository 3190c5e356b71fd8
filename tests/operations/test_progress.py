"""Progress: bars on a terminal, lines elsewhere, nothing without a listener."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import threading
from collections.abc import Iterator

import pytest

from enroot_py import log
from enroot_py.image.digest import digest_of
from enroot_py.image.manifest import Descriptor
from enroot_py.operations.progress import Progress, TerminalProgress, open_progress
from tests.operations.importing import Workplace
from tests.registry.fake_registry import FakeRegistry
from tests.registry.faults import drip
from tests.registry.images import file

LAYERS = tuple(Descriptor("", digest_of(bytes([at])), 1000 * (at + 1)) for at in range(3))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    said: list[str] = []
    log.set_sink(lambda level, text: said.append(f"[{level}] {text}"))
    yield said
    log.set_sink(None)


def test_layers_are_counted_down_in_lines(lines: list[str]) -> None:
    with Progress() as progress:
        progress.begin(LAYERS, LAYERS[1:])
        progress.received(LAYERS[2], 500)
        progress.arrived(LAYERS[2])
        progress.arrived(LAYERS[1])
        progress.flattened(LAYERS[0], 1000)
        progress.stage("Creating squashfs filesystem")
    short = [layer.digest.hex[:12] for layer in LAYERS]
    assert lines == [
        "[INFO] Downloading 2 of 3 layers (4.9 KiB)",
        f"[INFO] Downloaded {short[2]} (2.9 KiB), 1 to go",
        f"[INFO] Downloaded {short[1]} (2.0 KiB)",
        "[INFO] Creating squashfs filesystem",
    ]


def test_a_layer_that_is_there_twice_counts_once(lines: list[str]) -> None:
    Progress().begin((LAYERS[0], LAYERS[0], LAYERS[1]), (LAYERS[0],))
    Progress().begin(LAYERS, ())
    Progress().begin(LAYERS, LAYERS, here={layer.digest for layer in LAYERS})
    assert lines == [
        "[INFO] Downloading 1 of 2 layers (1000 B)",
        "[INFO] Found all layers in the cache",
        "[INFO] Verifying 3 of 3 layers (5.9 KiB)",
    ]


def test_layers_that_are_here_are_told_from_those_that_are_not(lines: list[str]) -> None:
    progress = Progress()
    progress.begin(LAYERS, LAYERS, here={LAYERS[0].digest})
    for layer in LAYERS[:2]:
        progress.arrived(layer)
    short = [layer.digest.hex[:12] for layer in LAYERS]
    assert lines == [
        "[INFO] Downloading 2 of 3 layers (4.9 KiB)",
        "[INFO] Verifying 1 of 3 layers (1000 B)",
        f"[INFO] Verified {short[0]} (1000 B), 2 to go",
        f"[INFO] Downloaded {short[1]} (2.0 KiB), 1 to go",
    ]


def test_only_a_terminal_gets_bars(lines: list[str]) -> None:
    assert type(open_progress(io.StringIO())) is Progress
    master, slave = pty.openpty()
    try:
        with open(slave, "w") as terminal:
            assert type(open_progress(terminal)) is TerminalProgress
    finally:
        os.close(master)


def test_bars_survive_layers_in_any_order_from_any_thread(lines: list[str]) -> None:
    stream = io.StringIO()
    with TerminalProgress(stream) as progress:
        progress.begin(LAYERS, LAYERS)

        def fetch(layer: Descriptor) -> None:
            for count in (10, 500, 0, layer.size):
                progress.received(layer, count)
            progress.arrived(layer)
            progress.arrived(layer)
            progress.flattened(layer, layer.size)

        threads = [threading.Thread(target=fetch, args=(layer,)) for layer in LAYERS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        progress.stage("done")


def read_terminal(command: list[str], place: Workplace) -> tuple[str, int]:
    """Run a command on a terminal; returns what it wrote there, and its exit status."""
    master, slave = pty.openpty()
    environ = {**place.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=place.out, env=environ
    )
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:
        pass  # EIO: the last writer has closed the terminal
    finally:
        os.close(master)
    return written.decode("utf-8", "replace"), process.wait(timeout=60)


def test_a_command_on_a_terminal_shows_bars_and_lines_on_a_pipe(
    registry: FakeRegistry, place: Workplace
) -> None:
    built = registry.images.image("t/one", "1", [[file("a", os.urandom(400_000))]])
    registry.fault("/blobs/", drip(40_000, 0.05))
    uri = f"docker://{registry.host}#t/one:1"
    text, status = read_terminal(place.command("import", "-o", "a.sqsh", uri), place)
    assert status == 0
    assert built.layers[0]["digest"].removeprefix("sha256:")[:12] in text
    assert "flattening" in text
    assert "\x1b[" in text
    done = place.run("import", "-o", "b.sqsh", uri, ENROOT_CACHE_PATH=str(place.path / "other"))
    assert done.returncode == 0
    assert done.stdout == ""
    assert "\x1b" not in done.stderr
    assert all(line.startswith("[INFO] ") for line in done.stderr.splitlines())
    assert any("Downloaded" in line for line in done.stderr.splitlines())
