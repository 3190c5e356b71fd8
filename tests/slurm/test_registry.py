"""Images of a registry in steps: imported once a node, one digest for all of them."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.registry.fake_registry import Action, FakeRegistry, Handler, Response
from tests.registry.faults import drip
from tests.registry.images import ImageStore, busybox_layer, file
from tests.slurm.rig import NODES, Rig
from tests.slurm.watching import Messages

pytestmark = pytest.mark.slurm


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    images = ImageStore()
    for tag in ("1", "2"):
        images.image("t/box", tag, [busybox_layer(), [file("etc/mark", f"version {tag}\n")]])
    with FakeRegistry(images) as registry:
        yield registry


@pytest.fixture(autouse=True)
def empty_caches(rig: Rig) -> Iterator[None]:
    yield
    rig.run("srun", f"-N{NODES}", "rm", "-rf", f"{rig.base}/local/cache-{rig.user.pw_name}")


def image(registry: FakeRegistry, tag: str = "1") -> str:
    return f"--container-image={registry.url.removeprefix('http://')}/t/box:{tag}"


def blobs(registry: FakeRegistry) -> int:
    return len(registry.paths("/blobs/"))


def test_a_node_imports_an_image_once_for_all_its_steps(rig: Rig, registry: FakeRegistry) -> None:
    steps = [
        rig.popen("pyxis-srun", "-w", "node1", image(registry), "cat", "/etc/mark")
        for _ in range(6)
    ]
    outputs = [step.communicate(timeout=200) for step in steps]
    assert [out for out, _ in outputs] == ["version 1\n"] * 6, outputs
    # Two layers and the config, whoever asked first.
    assert blobs(registry) == 3
    assert rig.remains() == []


def test_nodes_do_not_ask_what_a_tag_means(rig: Rig, registry: FakeRegistry) -> None:
    done = rig.run("pyxis-srun", f"-N{NODES}", image(registry), "cat", "/etc/mark")
    assert done.stdout == "version 1\n" * NODES, done.stderr
    # The submission asked, once; nodes ask for digests.
    by_tag = [entry for entry in registry.paths("/manifests/") if entry.endswith("/1")]
    assert len(by_tag) == 1
    assert blobs(registry) == 3 * NODES


def test_who_waits_is_told_what_for(rig: Rig) -> None:
    images = ImageStore()
    images.image("t/box", "1", [busybox_layer(), [file("data", os.urandom(2 << 20))]])
    with FakeRegistry(images) as registry:
        told = threading.Event()
        registry.fault("/blobs/", held(1 << 18, told))
        words = ["pyxis-srun", "-w", "node1", image(registry)]
        steps = [rig.popen(*words, "true") for _ in range(2)]
        messages = [Messages(step) for step in steps]

        def all_is_said() -> bool:
            texts = ["".join(each.lines) for each in messages]
            return (
                all("still importing" in text and "/t/box:1" in text for text in texts)
                and any(re.search(r"[0-9.]+ of [0-9.]+ MiB have arrived", text) for text in texts)
                and any("Waiting for another process" in text for text in texts)
            )

        try:
            deadline = time.monotonic() + 60
            while not all_is_said():
                assert time.monotonic() < deadline, [each.lines for each in messages]
                time.sleep(0.05)
        finally:
            told.set()
            errors = [each.all() for each in messages]
    assert [step.wait(timeout=60) for step in steps] == [0, 0], errors
    for step in steps:
        step.communicate()


def held(size: int, told: threading.Event) -> Action:
    """Send the rest of a long body when the event has come."""

    def act(handler: Handler, response: Response) -> Response | None:
        if len(response.body) <= size:
            return response
        handler.send_head(response)
        handler.wfile.write(response.body[:size])
        handler.wfile.flush()
        told.wait(90)
        handler.wfile.write(response.body[size:])
        return None

    return act


def test_who_submits_is_told_that_the_registry_is_slow(rig: Rig, registry: FakeRegistry) -> None:
    registry.fault("/manifests/", drip(100, 1.0), times=1)
    done = rig.run("pyxis-srun", "-w", "node1", image(registry), "cat", "/etc/mark")
    assert done.stdout == "version 1\n", done.stderr
    assert "still asking the registry for the digest of" in done.stderr


def test_a_slow_hook_is_named_as_what_is_waited_for(rig: Rig) -> None:
    folder = rig.folder("config") / "hooks.d"
    folder.mkdir()
    go = folder.parent / "go"
    (folder / "99-slow.sh").write_text(
        f"#!/bin/sh\ni=0; until test -e {go} || test $i -ge 600; do sleep 0.1; i=$((i+1)); done\n"
    )
    (folder / "99-slow.sh").chmod(0o755)
    for path in (folder, folder / "99-slow.sh"):
        os.chown(path, rig.user.pw_uid, rig.user.pw_gid)
    words = ["pyxis-srun", f"--container-image={rig.shared}/image.sqsh", "cat", "/etc/mark"]
    with rig.popen(*words, ENROOT_CONFIG_PATH=str(folder.parent)) as step:
        messages = Messages(step)
        news = "still starting the container: mounts, hooks and entrypoint"
        said = messages.wait_for(news, more_than=0)
        go.touch()
        assert step.stdout is not None
        out = step.stdout.read()
        step.wait(timeout=60)
        err = messages.all()
    assert (out, said) == ("image\n", True), err


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_tag_that_moves_during_a_job_means_what_it_meant(
    rig: Rig, registry: FakeRegistry, way: str
) -> None:
    def run(tag: str, digest: str, *command: str) -> subprocess.CompletedProcess[str]:
        words = ["pyxis-srun", "-w", "node1", image(registry, tag)]
        if way == "flag":
            return rig.run(*words, f"--container-digest={digest}", *command)
        return rig.run(*words, *command, PYXIS_CONTAINER_DIGEST=digest)

    digest = run("1", "print", "true").stderr.split(" is ")[1].split()[0]
    assert digest.startswith("sha256:")
    pinned = run("2", digest, "cat", "/etc/mark")
    assert pinned.stdout == "version 1\n", pinned.stderr


def test_an_image_that_is_not_there_ends_before_submission(
    rig: Rig, registry: FakeRegistry
) -> None:
    done = rig.run("pyxis-srun", image(registry, "nosuch"), "true")
    assert done.returncode != 0
    assert "nosuch" in done.stderr
    assert "Exited with exit code" not in done.stderr


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_an_import_that_takes_too_long_is_given_up(
    rig: Rig, registry: FakeRegistry, way: str
) -> None:
    given_up = threading.Event()
    slowly = drip(1 << 12, 0.2)
    registry.fault(
        "/blobs/",
        lambda handler, response: response if given_up.is_set() else slowly(handler, response),
    )
    words = ["pyxis-srun", "-w", "node1", image(registry), "cat", "/etc/mark"]
    if way == "flag":
        late = rig.run("pyxis-srun", "--container-import-timeout=1", *words[1:])
    else:
        late = rig.run(*words, PYXIS_CONTAINER_IMPORT_TIMEOUT="1")
    assert late.returncode != 0
    assert "took longer than 1 s" in late.stderr
    assert "--container-import-timeout" in late.stderr
    given_up.set()
    assert rig.remains() == []
    done = rig.run(*words)
    assert done.stdout == "version 1\n", done.stderr


def test_a_digest_that_the_registry_has_not(rig: Rig, registry: FakeRegistry) -> None:
    pinned = f"--container-digest=sha256:{'5' * 64}"
    done = rig.run("pyxis-srun", "-w", "node1", image(registry), pinned, "true")
    assert done.returncode != 0
    assert "5" * 64 in done.stderr


@pytest.mark.parametrize("setting", ["use_squashfuse=no", "use_enroot_load=yes", "image_store="])
def test_a_site_chooses_how_images_are_kept(rig: Rig, registry: FakeRegistry, setting: str) -> None:
    store = rig.base / "local/store"
    if setting == "image_store=":
        rig.run("srun", "-w", "node4", "mkdir", "-p", str(store))
        setting += str(store)
    words = ["pyxis-srun", "-w", "node4", "-n2", image(registry), "--container-writable"]
    script = (
        "touch /mine-$SLURM_PROCID; i=0;"
        " until test -e /mine-0 -a -e /mine-1 || test $i -ge 300; do sleep 0.1; i=$((i+1)); done;"
        " ls -d /mine-* | wc -l; cat /etc/mark"
    )
    for _ in range(2):
        done = rig.run(*words, "sh", "-c", script, PYXIS_PLUGIN_OPTIONS=setting)
        assert sorted(done.stdout.splitlines()) == ["2", "2", "version 1", "version 1"], done
    kept = list(rig.node(4).glob("store/**/*.sqsh"))
    assert len(kept) == setting.startswith("image_store")
    rig.run("srun", "-w", "node4", "rm", "-rf", str(store))
    assert rig.remains() == []


def test_a_batch_script_names_a_registry_with_a_hash(rig: Rig, registry: FakeRegistry) -> None:
    """sbatch takes what follows a bare one for a comment."""
    log, script = rig.shared / "hash.out", rig.shared / "hash.sh"
    uri = image(registry).replace("/t/box", "\\#t/box")
    script.write_text(f"#!/bin/sh\n#SBATCH {uri}\ncat /etc/mark\n")
    done = rig.run("pyxis-sbatch", "--parsable", f"--output={log}", str(script))
    assert rig.wait_for_job(done.stdout.strip()) == "COMPLETED", log.read_text()
    assert log.read_text().splitlines()[-1] == "version 1"


def test_a_named_container_is_made_from_a_registrys_image(rig: Rig, registry: FakeRegistry) -> None:
    words = ["pyxis-srun", "-w", "node3", "--container-name=fromreg"]
    done = rig.run(*words, image(registry), "cat", "/etc/mark")
    assert done.stdout == "version 1\n", done.stderr
    asked = len(registry.log)
    again = rig.run(*words, "cat", "/etc/mark")
    assert (again.stdout, len(registry.log)) == ("version 1\n", asked), again.stderr
    rig.run("srun", "-w", "node3", "enroot", "remove", "-f", "pyxis_fromreg")
    assert rig.remains() == []


def test_a_site_without_a_cache_leaves_no_image(rig: Rig, registry: FakeRegistry) -> None:
    options = {"PYXIS_PLUGIN_OPTIONS": "cache_policy=never"}
    for _ in range(2):
        done = rig.run("pyxis-srun", "-w", "node2", image(registry), "cat", "/etc/mark", **options)
        assert done.stdout == "version 1\n", done.stderr
    assert blobs(registry) == 6
    assert rig.remains() == []


def test_an_external_importer_brings_the_image(rig: Rig) -> None:
    importer = rig.shared / "importer.sh"
    importer.write_text(
        "#!/bin/sh\n"
        f'echo "$1 $2 $SLURM_JOB_UID $PYXIS_VERSION" >> {rig.shared}/importer.log\n'
        f"[ $1 = release ] || echo {rig.shared}/image.sqsh\n"
    )
    importer.chmod(0o755)
    options = {"PYXIS_PLUGIN_OPTIONS": f"importer={importer}"}
    (rig.shared / "importer.log").touch()
    (rig.shared / "importer.log").chmod(0o666)
    done = rig.run("pyxis-srun", "--container-image=whatever:1", "cat", "/etc/mark", **options)
    assert done.stdout == "image\n", done.stderr
    said = [line.split() for line in (rig.shared / "importer.log").read_text().splitlines()]
    assert said[0][:2] == ["get", "docker://whatever:1"]
    assert said[-1][0] == "release"
    importer.write_text("#!/bin/sh\necho out of luck >&2; exit 3\n")
    failed = rig.run("pyxis-srun", "--container-image=whatever:1", "true", **options)
    assert failed.returncode != 0
    assert "out of luck" in failed.stderr


def test_ours_is_an_importer(rig: Rig, registry: FakeRegistry) -> None:
    uri = image(registry).partition("=")[2]
    done = rig.run("srun", "-w", "node4", "pyxis", "importer", "get", f"docker://{uri}")
    path = done.stdout.strip()
    assert path.startswith(f"{rig.base}/local/cache-"), done.stderr
    started = rig.run("pyxis-srun", "-w", "node4", f"--container-image={path}", "cat", "/etc/mark")
    assert started.stdout == "version 1\n", started.stderr
    assert rig.run("srun", "pyxis", "importer", "release").returncode == 0
