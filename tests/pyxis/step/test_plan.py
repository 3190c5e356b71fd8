"""What a step's container is: names, states, images, mounts. Nothing is touched."""

from __future__ import annotations

import pytest

from enroot_py import ExistsError, Mount, NotFoundError, UsageError
from pyxis_py.args import Arguments, parse_mount_entry
from pyxis_py.job import JobFacts, enroot_environ, parse_step_id
from pyxis_py.plugin_config import PluginConfig
from pyxis_py.step.plan import (
    ABSENT,
    CREATE,
    DIRECT,
    FILE,
    IDLE,
    IMPORTER,
    JOIN,
    NO_IMAGE,
    PIN,
    REUSE,
    URI,
    add_pin,
    belongs_to_job,
    container_name,
    locate_image,
    pin_image,
    plan_step,
)

JOB = JobFacts(1000, 1000, 12, 3, cwd="/srv/job", environ={})
SITE = PluginConfig()
DIGEST = "sha256:" + "a" * 64
RUNNING = 4711


@pytest.mark.parametrize(
    ("name", "scope", "expected"),
    [
        ("", "global", "pyxis_12.3"),
        ("", "job", "pyxis_12_12.3"),
        ("mine", "global", "pyxis_mine"),
        ("mine", "job", "pyxis_12_mine"),
    ],
)
def test_containers_are_named_after_scope_and_step(name: str, scope: str, expected: str) -> None:
    config = SITE._replace(container_scope=scope)
    assert container_name(Arguments(image="i", name=name), config, JOB) == expected


@pytest.mark.parametrize(
    ("name", "named", "expected"),
    [
        ("pyxis_12.3", False, True),
        ("pyxis_12_12.3", False, True),
        ("pyxis_12.4294967291", False, True),
        ("pyxis_12_mine", True, True),
        ("pyxis_12_mine", False, False),
        ("pyxis_123_mine", True, False),
        ("pyxis_123.0", False, False),
        ("pyxis_12.x", False, False),
        ("pyxis_mine", True, False),
        ("12.3", True, False),
    ],
)
def test_a_jobs_containers_are_told_from_others(name: str, named: bool, expected: bool) -> None:
    assert belongs_to_job(name, 12, named=named) is expected


@pytest.mark.parametrize(
    ("mode", "existing", "image", "expected"),
    [
        ("auto", ABSENT, "/i", CREATE), ("create", ABSENT, "/i", CREATE),
        ("no_exec", ABSENT, "/i", CREATE), ("exec", ABSENT, "/i", NotFoundError),
        ("auto", ABSENT, "", NotFoundError), ("create", ABSENT, "", NotFoundError),
        ("exec", ABSENT, "", NotFoundError), ("no_exec", ABSENT, "", NotFoundError),
        ("auto", IDLE, "", REUSE), ("create", IDLE, "/i", ExistsError),
        ("exec", IDLE, "", NotFoundError), ("no_exec", IDLE, "", REUSE),
        ("auto", RUNNING, "", JOIN), ("create", RUNNING, "/i", ExistsError),
        ("exec", RUNNING, "", JOIN), ("no_exec", RUNNING, "", REUSE),
    ],
)  # fmt: skip
def test_what_a_name_means_depends_on_what_has_it(
    mode: str, existing: int, image: str, expected: str | type[Exception]
) -> None:
    arguments = Arguments(image=image, name="mine", name_mode=mode)
    if isinstance(expected, str):
        plan = plan_step(arguments, SITE, JOB, existing=existing)
        assert plan.action == expected
        assert plan.pid == (RUNNING if expected == JOIN else 0)
        assert plan.origin == (FILE if expected == CREATE else NO_IMAGE)
        assert not plan.temporary
    else:
        with pytest.raises(expected, match="mine"):
            plan_step(arguments, SITE, JOB, existing=existing)


@pytest.mark.parametrize(
    ("arguments", "config", "action"),
    [
        ({}, {}, DIRECT),
        ({"save": "/s"}, {}, CREATE),
        ({}, {"use_squashfuse": False}, CREATE),
        ({}, {"use_enroot_load": True}, CREATE),
        ({"name": "n"}, {}, CREATE),
    ],
)
def test_only_a_container_that_is_not_kept_starts_straight_from_its_image(
    arguments: dict[str, str], config: dict[str, bool], action: str
) -> None:
    plan = plan_step(Arguments(image="/i", **arguments), SITE._replace(**config), JOB)  # type: ignore[arg-type]
    assert plan.action == action
    assert plan.temporary is (action == CREATE and "name" not in arguments)
    assert bool(plan.container) is (action == CREATE)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("/a.sqsh", (FILE, "/a.sqsh")),
        ("./a.sqsh", (FILE, "/srv/job/a.sqsh")),
        ("../a", (FILE, "/srv/job/../a")),
        ("ubuntu:24.04", (URI, "docker://ubuntu:24.04")),
        ("nvcr.io#nvidia/pytorch:1", (URI, "docker://nvcr.io#nvidia/pytorch:1")),
        ("docker://ubuntu", (URI, "docker://ubuntu")),
        ("dockerd://ubuntu", (URI, "dockerd://ubuntu")),
        ("podman://ubuntu", (URI, "podman://ubuntu")),
        ("tar:latest", (URI, "docker://tar:latest")),
    ],
)
def test_where_an_image_comes_from(image: str, expected: tuple[str, str]) -> None:
    assert locate_image(Arguments(image=image), SITE, JOB) == expected


@pytest.mark.parametrize("image", ["image.sqsh", "images/a.squashfs"])
def test_a_file_without_a_dot_before_it_is_not_looked_for_in_a_registry(image: str) -> None:
    """pyxis#127."""
    with pytest.raises(UsageError, match="a registry, or a file") as caught:
        locate_image(Arguments(image=image), SITE, JOB)
    assert f"./{image} " in caught.value.hint
    named = Arguments(image=f"docker://{image}")
    assert locate_image(named, SITE, JOB) == (URI, f"docker://{image}")


def test_a_missing_container_is_named_as_enroot_names_it() -> None:
    """pyxis#172."""
    for scope, expected in (("global", "pyxis_mine"), ("job", "pyxis_12_mine")):
        with pytest.raises(NotFoundError) as caught:
            plan_step(Arguments(name="mine"), SITE._replace(container_scope=scope), JOB)
        assert caught.value.hint.endswith(f" {expected}")


def test_an_importer_gets_what_is_no_file() -> None:
    config = SITE._replace(importer="/imp")
    assert locate_image(Arguments(image="a.sqsh"), config, JOB)[0] == IMPORTER
    assert locate_image(Arguments(image="ubuntu"), config, JOB) == (IMPORTER, "docker://ubuntu")
    assert locate_image(Arguments(image="/a"), config, JOB) == (FILE, "/a")


def test_the_digest_that_was_found_at_submission_counts_for_its_image_alone() -> None:
    job = JOB._replace(environ={PIN: f"ubuntu {DIGEST}"})
    assert locate_image(Arguments(image="ubuntu"), SITE, job)[1] == f"docker://ubuntu@{DIGEST}"
    assert locate_image(Arguments(image="debian"), SITE, job)[1] == "docker://debian"
    both = JOB._replace(environ={PIN: add_pin(f"ubuntu {DIGEST}", "debian", "sha256:" + "b" * 64)})
    assert locate_image(Arguments(image="ubuntu"), SITE, both)[1] == f"docker://ubuntu@{DIGEST}"
    assert locate_image(Arguments(image="debian"), SITE, both)[1].endswith("b" * 64)
    many = ""
    for number in range(40):
        many = add_pin(many, f"image{number}", DIGEST)
    assert (len(many.split()), many.split()[-2]) == (32, "image39")
    hostile = JOB._replace(environ={PIN: "ubuntu ../../x"})
    assert locate_image(Arguments(image="ubuntu"), SITE, hostile)[1] == "docker://ubuntu"


def test_a_digest_pins_and_never_contradicts() -> None:
    assert pin_image("docker://a:1", DIGEST) == f"docker://a:1@{DIGEST}"
    assert pin_image(f"docker://a@{DIGEST}", DIGEST) == f"docker://a@{DIGEST}"
    assert pin_image("docker://user@host#a", DIGEST) == f"docker://user@host#a@{DIGEST}"
    assert pin_image("dockerd://a", DIGEST) == "dockerd://a"
    with pytest.raises(UsageError, match="not the digest"):
        pin_image("docker://a@sha256:" + "b" * 64, DIGEST)
    with pytest.raises(UsageError, match="is a file"):
        locate_image(Arguments(image="/a", digest=DIGEST), SITE, JOB)


def test_relative_paths_need_a_folder_to_count_from() -> None:
    for arguments in (Arguments(image="./i"), Arguments(image="/i", save="s")):
        with pytest.raises(UsageError, match="working directory is not known"):
            plan_step(arguments, SITE, JOB._replace(cwd=""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a:/b:ro", Mount("/a", "/b", "none", ("x-create=auto", "rbind", "ro"))),
        ("./a:/b", Mount("/srv/job/a", "/b", "none", ("x-create=auto", "rbind"))),
        ("tmpfs:/t:size=1M", Mount("tmpfs", "/t", "tmpfs", ("x-create=dir", "size=1M"))),
        ("/a.sqsh:/d:sqsh", Mount("/a.sqsh", "/d", "squashfs", ("x-create=dir",))),
        ("/a:/d:ro+squashfs", Mount("/a", "/d", "squashfs", ("x-create=dir", "ro"))),
        ("umount:/proc", Mount("none", "/proc", "none", ("x-detach",))),
    ],
)
def test_mounts_become_entries_of_an_fstab(text: str, expected: Mount) -> None:
    arguments = Arguments(image="/i", mounts=(parse_mount_entry(text),))
    assert plan_step(arguments, SITE, JOB).mounts == (expected,)


def test_mounts_are_dropped_with_a_word_when_a_running_container_is_joined() -> None:
    arguments = Arguments(name="n", mounts=(parse_mount_entry("/a:/b"),))
    plan = plan_step(arguments, SITE, JOB, existing=RUNNING)
    assert plan.mounts == ()
    assert "ignored" in plan.messages[0]


def test_a_batch_script_is_mounted_first() -> None:
    job = JOB._replace(script="/spool/script", script_target="/elsewhere")
    first = plan_step(Arguments(image="/i"), SITE, job).mounts[0]
    assert (first.source, first.target) == ("/spool/script", "/elsewhere")
    assert "ro" in first.options


@pytest.mark.parametrize(
    ("asked", "site", "expected"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_the_site_decides_about_entrypoints_unless_asked(
    asked: bool | None, site: bool, expected: bool
) -> None:
    arguments = Arguments(image="/i", entrypoint=asked)
    plan = plan_step(arguments, SITE._replace(execute_entrypoint=site), JOB)
    assert plan.entrypoint is expected


def test_enroot_works_in_the_jobs_environment_but_for_what_is_the_sites() -> None:
    job = JOB._replace(
        environ={
            "PATH": "/evil", "LD_PRELOAD": "/evil.so", "ENROOT_DATA_PATH": "/evil",
            "SLURM_PROCID": "0", "PMI_RANK": "0", "PMI_FD": "9", "SLURM_JOB_UID": "0",
            "ENROOT_ROOTFS_WRITABLE": "n", "MINE": "1",
        }
    )  # fmt: skip
    arguments = Arguments(image="/i", writable=True, remap_root=False, unshare=("net",))
    environ = enroot_environ(arguments, SITE._replace(image_store="/store"), job, "/bin")
    assert environ == {
        "PATH": "/bin", "MINE": "1", "SLURM_JOB_UID": "1000", "SLURM_JOB_GID": "1000",
        "ENROOT_ROOTFS_WRITABLE": "y", "ENROOT_REMAP_ROOT": "n", "ENROOT_UNSHARE_NET": "y",
        "ENROOT_CACHE_PATH": "/store", "PYXIS_RUNTIME_PATH": "/run/pyxis",
        "PYXIS_VERSION": environ["PYXIS_VERSION"],
    }  # fmt: skip


def test_whoever_runs_a_step_himself_is_the_site() -> None:
    job = JOB._replace(environ={"PATH": "/evil", "ENROOT_DATA_PATH": "/mine", "PMI_RANK": "0"})
    environ = enroot_environ(Arguments(image="/i"), SITE, job, "/bin", own=True)
    assert environ["ENROOT_DATA_PATH"] == "/mine"
    assert environ["PATH"] == "/bin"
    assert "PMI_RANK" not in environ


@pytest.mark.parametrize(
    ("text", "node", "said"),
    [
        ("/a:/b:r0", "0", ["mount /a:/b: 'r0' is no flag of mounts, and has no effect"]),
        ("/a:/b:ro:z", "0", ["mount /a:/b: 'ro:z' is no flag of mounts, and has no effect"]),
        ("/a:/b:r0", "1", []),
        ("/a:/b:ro+rslave+nosuid+x-create=file+x-mine", "0", []),
        ("/a.sqsh:/b:sqsh+errors=panic", "0", []),
        ("tmpfs:/b:size=1M", "0", []),
        ("umount:/b", "0", []),
    ],
)
def test_a_flag_of_mounts_that_does_nothing_is_told_of_by_one_node(
    text: str, node: str, said: list[str]
) -> None:
    """Who misspells `ro` has something that can be written to."""
    job = JOB._replace(environ={"SLURM_NODEID": node})
    arguments = Arguments(image="/i", mounts=(parse_mount_entry(text),))
    assert list(plan_step(arguments, SITE, job).messages) == said


@pytest.mark.parametrize(
    ("uid", "value", "expected"),
    [(0, "yes", True), (0, "no", False), (0, "", False), (1000, "yes", False)],
)
def test_only_root_may_stay_root(uid: int, value: str, expected: bool) -> None:
    job = JOB._replace(uid=uid, environ={"ENROOT_ALLOW_SUPERUSER": value})
    assert job.privileged is expected


def test_the_batch_step_has_a_number() -> None:
    assert parse_step_id("batch") == 4294967291
    assert parse_step_id("7") == 7


EARLIER = "container n on n7 is one of job 77, with what was written to it since"


@pytest.mark.parametrize(
    ("image", "state", "maker", "said"),
    [
        ("", IDLE, 0, ()),
        ("", IDLE, JOB.job, ()),
        ("/a.sqsh", ABSENT, 77, ()),
        ("", IDLE, 77, (EARLIER,)),
        ("/a.sqsh", 4242, 77, (f"{EARLIER}; --container-image is not unpacked again",)),
    ],
)
def test_a_container_of_another_job_is_announced(
    image: str, state: int, maker: int, said: tuple[str, ...]
) -> None:
    job = JOB._replace(environ={"SLURMD_NODENAME": "n7"})
    arguments = Arguments(image=image, name="n")
    plan = plan_step(arguments, SITE, job, existing=state, maker=maker)
    assert plan.messages == said
