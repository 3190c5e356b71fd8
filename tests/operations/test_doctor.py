"""The doctor: what it finds wrong, and what it says to do about it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from errno import EACCES, EINVAL, ENODEV, ENOENT, ENOSPC, EPERM
from pathlib import Path

import pytest

from enroot_py.operations.doctor.findings import Finding, Status
from enroot_py.operations.doctor.folders import (
    examine_configuration,
    examine_credentials,
    examine_folders,
    examine_hooks,
    examine_mounts,
    examine_names,
)
from enroot_py.operations.doctor.gpus import examine_gpus
from enroot_py.operations.doctor.kernel import SWITCHES, examine_kernel
from enroot_py.operations.doctor.probe import STEPS, Attempt, try_steps
from enroot_py.operations.doctor.registries import examine_registries
from enroot_py.settings import Settings, load_settings
from tests.cli.command import ENROOT, Command
from tests.registry.fake_registry import BasicAuth, FakeRegistry
from tests.roots.driver import eight_gpus, full_driver, make_nodes
from tests.this_process import open_files

OK, NOTE, FAULT = Status.OK, Status.NOTE, Status.FAULT
USERNS = "user namespaces"


@pytest.fixture
def enroot(tmp_path: Path) -> Command:
    return Command(tmp_path)


def settings_of(enroot: Command, **environ: str) -> Settings:
    return load_settings({**enroot.environ, **environ})


def attempts(**failures: int) -> dict[str, Attempt]:
    names = {name.replace("_", " "): errno for name, errno in failures.items()}
    return {step: Attempt(step, names.get(step, 0)) for step in STEPS}


def switches(**values: str) -> dict[str, str]:
    return dict.fromkeys(SWITCHES, "") | {
        name: values.get(name.rpartition("/")[2], "") for name in SWITCHES
    }


@pytest.mark.parametrize(
    "failures, values, subject, status, remedy",
    [
        ({}, {}, USERNS, OK, ""),
        ({}, {"apparmor_restrict_unprivileged_userns": "1"}, USERNS, OK, ""),
        (
            {"user_namespace": ENOSPC},
            {"max_user_namespaces": "0"},
            USERNS, FAULT, "sysctl -w user.max_user_namespaces=",
        ),
        (
            {"user_namespace": EPERM},
            {"unprivileged_userns_clone": "0"},
            USERNS, FAULT, "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            {"user_namespace": ENOSPC},
            {"max_user_namespaces": "100"},
            USERNS, FAULT, "lsns --type user",
        ),
        (
            {"mount_namespace": ENOSPC},
            {"max_mnt_namespaces": "0"},
            USERNS, FAULT, "sysctl -w user.max_mnt_namespaces=",
        ),
        (
            {"user_map": EPERM},
            {"apparmor_restrict_unprivileged_userns": "1"},
            USERNS, FAULT, "apparmor_parser -r /etc/apparmor.d/enroot",
        ),
        (
            {"tmpfs": EACCES},
            {"apparmor_restrict_unprivileged_userns": "1"},
            USERNS, FAULT, "userns,",
        ),
        ({"user_namespace": EINVAL}, {}, USERNS, FAULT, "CONFIG_USER_NS"),
        ({"user_namespace": EPERM}, {}, USERNS, FAULT, "seccomp"),
        ({"pid_namespace": EPERM}, {}, "other namespaces", NOTE, "/proc"),
        (
            {"net_namespace": ENOSPC},
            {"max_net_namespaces": "0"},
            "other namespaces", NOTE, "sysctl -w user.max_net_namespaces=",
        ),
        ({"overlayfs": ENODEV}, {}, "overlayfs", FAULT, "modprobe overlay"),
        ({"overlayfs": EPERM}, {}, "overlayfs", FAULT, "5.11"),
        ({"fuse": ENOENT}, {}, "FUSE", NOTE, "modprobe fuse"),
    ],
)  # fmt: skip
def test_each_refusal_has_its_remedy(
    failures: dict[str, int], values: dict[str, str], subject: str, status: Status, remedy: str
) -> None:
    findings = examine_kernel(attempts(**failures), switches(**values), 0o666)
    (found,) = [finding for finding in findings if finding.subject == subject]
    assert found.status is status
    assert remedy in "\n".join(found.remedy)
    if failures:
        assert os.strerror(next(iter(failures.values()))) in found.text
    others = [finding for finding in findings if finding.subject != subject]
    assert all(finding.status is OK for finding in others)


@pytest.mark.parametrize("mode, remedy", [(0o600, "chmod 0666 /dev/fuse"), (0o666, "4.18")])
def test_a_closed_fuse_device_is_told_from_an_old_kernel(mode: int, remedy: str) -> None:
    findings = examine_kernel(attempts(fuse=EACCES), switches(), mode)
    assert remedy in findings[-1].remedy[0]


def faults(findings: list[Finding]) -> dict[str, Finding]:
    return {found.subject: found for found in findings if found.status is FAULT}


def test_folders_that_can_be_made_are_in_order(enroot: Command) -> None:
    findings = examine_folders(settings_of(enroot))
    assert [found.subject for found in findings] == [
        "ENROOT_DATA_PATH",
        "ENROOT_CACHE_PATH",
        "ENROOT_TEMP_PATH",
        "ENROOT_RUNTIME_PATH",
    ]
    assert not faults(findings)
    assert all("made when needed" in found.text for found in findings)
    assert enroot.tree() == []


@pytest.mark.kernel  # as an ordinary user: root may write anywhere
def test_folders_that_cannot_be_written_are_faults(enroot: Command) -> None:
    closed = enroot.root / "closed"
    closed.mkdir(mode=0o555)
    settings = settings_of(enroot, ENROOT_DATA_PATH=f"{closed}/a/b", ENROOT_TEMP_PATH=str(closed))
    found = faults(examine_folders(settings))
    assert sorted(found) == ["ENROOT_DATA_PATH", "ENROOT_TEMP_PATH"]
    data = found["ENROOT_DATA_PATH"]
    assert "cannot be made" in data.text and str(closed) in data.text
    assert f"install -d -m 700 -o {os.geteuid()}" in data.remedy[0]
    assert "export ENROOT_DATA_PATH=" in data.remedy[1]


def test_odd_folders_are_faults(enroot: Command) -> None:
    (enroot.root / "file").touch()
    enroot.data.mkdir()
    enroot.data.chmod(0o777)
    settings = settings_of(enroot, ENROOT_TEMP_PATH=str(enroot.root / "file"))
    found = faults(examine_folders(settings))
    assert "not a folder" in found["ENROOT_TEMP_PATH"].text
    assert "changed by other users" in found["ENROOT_DATA_PATH"].text
    assert found["ENROOT_DATA_PATH"].remedy == (f"chmod go-w {enroot.data}",)


@pytest.mark.parametrize(
    "mode, status, word",
    [(0o600, OK, ""), (0o400, OK, ""), (0o640, OK, ""), (0o644, FAULT, "read")]
    + [(0o620, FAULT, "changed"), (0o666, FAULT, "changed")],
)
def test_credentials_belong_to_their_user(
    enroot: Command, mode: int, status: Status, word: str
) -> None:
    path = Path(settings_of(enroot).credentials_file)
    path.parent.mkdir()
    path.write_text("machine r login u password secret\n")
    path.chmod(mode)
    found = examine_credentials(settings_of(enroot))
    assert found.status is status
    assert word in found.text and "secret" not in found.text
    if status is FAULT:
        assert found.remedy == (f"chmod 600 {path}",)


def test_credentials_are_a_file(enroot: Command) -> None:
    path = Path(settings_of(enroot).credentials_file)
    assert "without a login" in examine_credentials(settings_of(enroot)).text
    path.parent.mkdir()
    os.mkfifo(path)
    assert examine_credentials(settings_of(enroot)).status is FAULT


def test_what_others_can_change_is_not_to_be_run(enroot: Command) -> None:
    hooks = enroot.root / "etc/hooks.d"
    hooks.mkdir(parents=True)
    (hooks / "10-safe.sh").touch(mode=0o755)
    (hooks / "20-open.sh").touch()
    (hooks / "20-open.sh").chmod(0o777)
    conf = enroot.root / "etc/enroot.conf"
    conf.touch()
    conf.chmod(0o666)
    (found,) = examine_hooks(settings_of(enroot))
    assert found.status is FAULT and found.remedy == (f"chmod go-w {hooks}/20-open.sh",)
    assert examine_configuration(settings_of(enroot)).status is FAULT
    conf.chmod(0o644)
    assert examine_configuration(settings_of(enroot)).text == str(conf)


def test_a_misspelt_setting_is_noted(enroot: Command) -> None:
    conf = enroot.root / "etc/enroot.conf"
    conf.parent.mkdir()
    conf.write_text("ENROOT_MOUNT_HOM y\nENROOT_SITE_QUEUE batch\nENROOT_MAX_CONNECTIONS 4\n")
    own = {"ENROOT_DATA_PAHT": "/x", "ENROOT_MOUNTS": "/x", "ENROOT_GPU_ROOT": "/x"}
    first, second = examine_names(settings_of(enroot, **own))
    assert (first.status, first.text) == (NOTE, "ENROOT_DATA_PAHT is unknown")
    assert first.remedy == ("# did you mean ENROOT_DATA_PATH?",)
    assert second.remedy == ("# did you mean ENROOT_MOUNT_HOME?",)


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (None, None),
        ({}, "/dev, /proc, /sys"),
        ({"site.fstab": "/data /data\n", "README": "/proc /proc\n"}, "/dev, /proc, /sys"),
        ({"a.fstab": "/dev /dev none rbind\nproc /proc proc\n", "b.fstab": "/sys"}, None),
        ({"a.fstab": "/dev /dev none rbind x y\n"}, "Invalid mount"),
    ],
)
def test_mounts_of_the_site_that_leave_out_the_standard_ones_are_a_fault(
    enroot: Command, files: dict[str, str] | None, missing: str | None
) -> None:
    folder = enroot.root / "etc/mounts.d"
    if files is not None:
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    found = examine_mounts(settings_of(enroot))
    assert [finding.status for finding in found] == [FAULT] * (missing is not None)
    for finding in found:
        assert (missing or "") in finding.text + str(finding.remedy)
    if files == {}:
        subprocess.run(["sh", "-c", found[0].remedy[0].removeprefix("sudo ")], check=True)
        assert examine_mounts(settings_of(enroot)) == []


def test_without_a_driver_nothing_is_said_of_gpus(enroot: Command) -> None:
    (enroot.root / "empty").mkdir()
    assert examine_gpus(settings_of(enroot, ENROOT_GPU_ROOT=f"{enroot.root}/empty")) == []


def test_gpus_that_may_not_be_used_are_noted(enroot: Command) -> None:
    """The nodes of this driver are ordinary files, so none can be used."""
    full_driver(enroot.root / "driver", eight_gpus())
    (found,) = examine_gpus(settings_of(enroot, ENROOT_GPU_ROOT=f"{enroot.root}/driver"))
    assert found.subject == "GPUs" and "NVIDIA driver " in found.text
    assert found.status is (OK if "8 of 8" in found.text or "0 of 0" in found.text else NOTE)


@pytest.mark.root
def test_gpus_that_may_be_used_are_counted(enroot: Command) -> None:
    make_nodes(full_driver(enroot.root / "driver", eight_gpus()))
    (found,) = examine_gpus(settings_of(enroot, ENROOT_GPU_ROOT=f"{enroot.root}/driver"))
    assert found.status is OK and found.text.endswith("8 of 8 GPUs may be used here")


def test_registries_are_asked(enroot: Command) -> None:
    with FakeRegistry() as registry:
        settings = settings_of(enroot, ENROOT_ALLOW_HTTP="y")
        (found,) = examine_registries([registry.host], settings)
        assert found.status is OK and found.text == "answers (http, without a login)"
        assert [entry.path for entry in registry.log] == ["/v2/"]
    (found,) = examine_registries([registry.host], settings)
    assert found.status is FAULT and "refused" in found.text and found.remedy


@pytest.mark.parametrize("password, status", [("pass-1", OK), ("pass-2", FAULT)])
def test_logins_are_tried(enroot: Command, password: str, status: Status) -> None:
    with FakeRegistry(auth=BasicAuth("me", "pass-1")) as registry:
        (enroot.root / "config").mkdir()
        path = enroot.root / "config/.credentials"
        path.write_text(f"machine {registry.host} login me password {password}\n")
        path.chmod(0o600)
        # Hosts with credentials are asked of their own accord.
        (found,) = examine_registries([], settings_of(enroot, ENROOT_ALLOW_HTTP="y"))
        assert found.subject == f"registry {registry.host}"
        assert found.status is status
        assert password not in found.text + "".join(found.remedy)


def test_mirrors_are_asked(enroot: Command) -> None:
    with FakeRegistry() as registry:
        mirrors = f"docker.io=http://{registry.host}/prefix"
        (found,) = examine_registries([], settings_of(enroot, ENROOT_MIRRORS=mirrors))
        assert found.status is OK and found.subject == f"registry {registry.host}"


def test_broken_mirrors_are_a_fault(enroot: Command) -> None:
    (found,) = examine_registries([], settings_of(enroot, ENROOT_MIRRORS="nonsense"))
    assert found.status is FAULT and "nonsense" in found.text


def test_the_report_fits_a_screen_and_creates_nothing(enroot: Command) -> None:
    done = enroot.run("doctor", "--offline")
    assert len(done.stdout.splitlines()) <= 24
    assert done.stdout.splitlines()[0].startswith("ok     host: ")
    assert enroot.tree() == []
    report = json.loads(enroot.run("doctor", "--offline", "--json").stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    shown = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert len(shown) == len(report["findings"])
    for line, finding in zip(shown, report["findings"], strict=True):
        assert set(finding) == {"subject", "status", "text", "remedy"}
        assert line.lower().startswith(finding["status"])


def test_it_names_the_slurm_step(enroot: Command) -> None:
    step = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "3"}
    done = enroot.run("doctor", "--offline", environ=step)
    assert "Slurm job 42 step 3" in done.stdout.splitlines()[0]


def test_a_broken_configuration_is_a_finding(enroot: Command) -> None:
    (enroot.root / "etc").mkdir()
    (enroot.root / "etc/enroot.conf").write_text("ENROOT_MAX_PROCESSORS '2\n")
    done = enroot.run("doctor", "--offline")
    assert done.returncode == 1
    assert "FAULT  configuration: " in done.stdout and "enroot.conf" in done.stdout
    assert done.stderr == ""


def test_an_option_behind_a_registry_is_refused(enroot: Command) -> None:
    done = enroot.run("doctor", "127.0.0.1:1", "--json")
    assert done.returncode == 1 and "--json" in done.stderr


@pytest.mark.kernel
def test_this_machine_passes() -> None:
    tried = try_steps(keep_user_namespace=False)
    assert {step: attempt.errno for step, attempt in tried.items()} == dict.fromkeys(STEPS, 0)


def in_namespace(enroot: Command, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as root of a user namespace, where limits and mounts can be set."""
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-euc", script, "sh", str(ENROOT)],
        env=enroot.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.kernel
def test_a_forbidden_namespace_is_found_and_the_rest_left_out(enroot: Command) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$1" doctor --offline'
    done = in_namespace(enroot, script)
    assert done.returncode == 1, done.stderr
    assert "FAULT  user namespaces: refused (user namespace: No space left" in done.stdout
    assert "sudo sysctl -w user.max_user_namespaces=" in done.stdout
    assert "overlayfs: can" not in done.stdout


@pytest.mark.kernel
def test_missing_fuse_and_full_or_noexec_folders_are_found(enroot: Command) -> None:
    for name in ("data", "tmp"):
        (enroot.root / name).mkdir()
    script = f"""
        mount -t tmpfs -o noexec,mode=700 tmpfs {enroot.data}
        mount -t tmpfs -o size=1M,mode=700 tmpfs {enroot.root}/tmp
        mount --bind /dev/null /dev/fuse
        exec "$1" doctor --offline
    """
    done = in_namespace(enroot, script)
    assert done.returncode == 1, done.stderr
    assert (
        f"FAULT  ENROOT_DATA_PATH: {enroot.data} is on {enroot.data}, mounted noexec" in done.stdout
    )
    assert f"mount -o remount,exec {enroot.data}" in done.stdout
    assert "note   ENROOT_TEMP_PATH" in done.stdout and "too little" in done.stdout
    assert "note   FUSE: /dev/fuse: " in done.stdout


def test_the_probe_leaves_this_process_alone() -> None:
    before = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt", "pid", "net")]
    descriptors = open_files()
    try_steps(keep_user_namespace=False)
    assert before == [
        os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt", "pid", "net")
    ]
    assert open_files() == descriptors
    assert stat.S_ISDIR(os.stat("/tmp").st_mode)
