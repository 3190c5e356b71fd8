"""What is refused, with which code, and what is noted: a row for every code and warning."""

from __future__ import annotations

from typing import Any

import pytest

from pyxis_py.kubernetes.profile.site import Profile
from pyxis_py.kubernetes.spec.notes import REFUSALS, RefusedError
from tests.kubernetes.samples import render, script, site

REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    # code, options, how to render
    ("image-squashfs", "--container-image=/x/y.sqsh", {}),
    ("image-squashfs", "--container-image=y.sqsh", {}),
    ("image-daemon", "--container-image=dockerd://ubuntu", {}),
    ("image-daemon", "--container-image=podman://ubuntu", {}),
    ("image-scheme", "--container-image=oci:///x", {}),
    ("image-none", "", {"image": ""}),
    ("container-name", "--container-name=x", {"image": ""}),
    ("container-save", "--container-save=/x.sqsh", {}),
    ("python-image", "", {"profile": Profile(), "bring_python": True}),
    ("mount-unmapped", "--container-mounts=/nowhere:/x", {}),
    ("mount-shared-propagation", "--container-mounts=/lustre:/x:rshared", {}),
    ("mount-umount", "--container-mounts=umount:/x", {}),
    ("mem-zero", "--mem=0 -p cpu", {}),
    ("exclusive-shape", "--exclusive -p cpu", {}),
    ("qos-unknown", "-q nope", {}),
    ("partition-unknown", "-p nope", {}),
    ("account-unknown", "-A nope", {}),
    ("partition-list", "-p flat,cpu", {}),
    ("feature-unknown", "-C nope", {}),
    ("gres-unknown", "--gres=nope:1", {}),
    ("gres-unknown", "--gres=gpu:b200:1", {}),
    ("reservation-unknown", "--reservation=nope", {}),
    ("nodelist-superset", "-w n1 -N 2", {}),
    ("constraint-matching-or", "-C [hbm80|ib]", {}),
    ("constraint-count", "-C hbm80*2", {}),
    ("constraint-nested", "-C (hbm80|ib)&x", {}),
    ("dependency-unsupported", "-d afterburstbuffer:1", {}),
    ("dependency-unsupported", "-d afterok:1", {"target": "volcano"}),
    ("hold-unsupported", "-H", {"target": "volcano"}),
    ("array-throttle", "-a 0-3%1 -N2", {"target": "slurm-bridge"}),
    ("array-throttle", "-a 0-3%1", {"target": "volcano"}),
    ("begin", "-b now+1hour", {}),
    ("licenses", "-L m:1", {}),
    ("bb", "--bb=x", {}),
    ("cluster", "-M other", {}),
    ("export-all", "--export=ALL", {}),
    ("export-file", "--export-file=x", {}),
    ("gpus-indivisible", "-N 3 -G 8", {}),
    ("gpus-per-socket", "--gpus-per-socket=4", {}),
    ("gpu-mixed", "--gres=gpu:h100:1,gpu:a100:1", {}),
    ("switches-several", "-N4 -p h100 --switches=2", {}),
    ("topology-indivisible", "-N4 -p h100 --segment=3", {}),
    ("topology-unknown", "-N4 -p flat --segment=2", {}),
    ("time-over-partition", "-p h100 -t 8-0", {}),
    ("name-too-long", "-J " + "x" * 60, {}),
    ("label-invalid", "-A a+b", {"profile": Profile()}),
    ("dra-tas", "-p h100 -N2 --gpus=2", {"gpu_api": "dra"}),
    ("dra-compute-domain", "-p nvl72 --gpus=4", {"target": "slurm-bridge"}),
    ("dra-fabric", "--gpus=4", {"profile": "{version: 1, fabric: {kind: dra, deviceClass: r}}"}),
    ("dra-config-kueue", "--gpus=4", {"gpu_api": "dra", "profile":
                                      "{version: 1, fabric: {kind: dra, deviceClass: r}}"}),
    ("security-host", "--container-mounts=/data:/x", {"profile": "{version: 1, mounts: [{path: "
                                                      "/data, name: d, hostPath: /data}]}"}),
    ("security-root", "--container-remap-root", {"profile":
                                                 "{version: 1, security: {allowRoot: false}}"}),
    ("hetjob", "-N1\n#SBATCH hetjob\n#SBATCH -N2", {}),
    ("option-unsupported", "--nodefile=x", {}),
    ("option-unsupported", "--tres-per-node=gres/gpu:1", {}),
    ("option-unsupported", "--reboot", {}),
    ("option-unsupported", "--container-device=nvidia.com/gpu=0", {}),
    ("invalid-value", "-t soon", {}),
    ("invalid-value", "-N 0", {}),
    ("invalid-value", "--mem=1G --mem-per-cpu=1G", {}),
    ("invalid-value", "--ntasks-per-gpu=1 --gpus-per-task=1", {}),
    ("invalid-value", "--container-mounts=x", {}),
    ("invalid-value", "-w n[1-4] -N 2", {}),
    ("invalid-value", "-N2 -n 9 --ntasks-per-node=2", {}),
    ("nested-sbatch", "", {"body": "if true; then sbatch next.sh; fi\n"}),
    ("pty", "", {"body": "srun --pty bash\n"}),
    ("x11", "", {"body": "srun --x11 xterm\n"}),
    ("srun-bcast", "", {"body": "srun --bcast=/tmp/x a\n"}),
    ("salloc", "", {"body": "x=$(salloc -N1 hostname)\n"}),
    ("sattach", "", {"body": "sattach 1.0\n"}),
    ("sacct", "", {"body": "sacct -j $SLURM_JOB_ID\n"}),
    ("sbcast", "", {"body": "sbcast a /tmp/a\n"}),
    ("mpi-server", "", {"body": "srun --mpi=pmix true\n"}),
    ("srun-option", "", {"body": "srun --task-prolog=x true\n"}),
    ("image-mixed", "", {"body": "srun --container-image=other true\n"}),
]  # fmt: skip


def _refused(options: str, how: dict[str, Any]) -> RefusedError:
    how = dict(how)
    profile = how.pop("profile", None)
    if isinstance(profile, str):
        profile = site(profile)
    shape = {key: how.pop(key) for key in ("image", "body") if key in how}
    if "--container-image" in options:
        shape["image"] = ""
    with pytest.raises(RefusedError) as caught:
        render(script(*([options] if options else []), **shape), profile=profile, **how)
    return caught.value


@pytest.mark.parametrize(("code", "options", "how"), REFUSED)
def test_what_has_no_equal_is_refused_with_its_code(
    code: str, options: str, how: dict[str, Any]
) -> None:
    error = _refused(options, how)
    assert code in error.codes
    note = next(note for note in error.notes if note.code == code)
    assert note.way_out
    assert f"[{code}]" in str(error) and note.way_out in str(error)
    if options and note.option and note.option != "--output":
        assert note.line >= 2


ELSEWHERE = {
    "env-secret": "test_render.py", "configmap-too-large": "test_render.py",
    "unknown-option": "test_jobspec.py",
}  # fmt: skip


def test_every_code_has_a_test_here_or_elsewhere() -> None:
    assert {code for code, _, _ in REFUSED} | set(ELSEWHERE) == set(REFUSALS)


@pytest.mark.parametrize(("code", "options", "how", "target"), [
    ("licenses", "-L m:1", {}, "kueue"),
    ("nested-sbatch", "", {"body": "sbatch x\n"}, "kueue"),
    ("array-throttle", "-a 0-3%1 -N2", {}, "volcano"),
])  # fmt: skip
def test_a_refusal_can_be_allowed(
    code: str, options: str, how: dict[str, Any], target: Any
) -> None:
    text = script(*([options] if options else []), **how)
    notes = {note.code: note.kind for note in render(text, target=target, allow=[code]).notes}
    assert notes[code] == "warning"


def test_what_makes_no_sense_cannot_be_allowed() -> None:
    with pytest.raises(RefusedError):
        render(script(image="/x.sqsh"), allow=["image-squashfs"])


@pytest.mark.parametrize(("code", "options", "how"), [
    ("image-latest-tag", "", {"image": "ubuntu"}),
    ("image-latest-tag", "", {"image": "ubuntu:latest"}),
    ("image-registry-separator", "", {"image": "nvcr.io/nvidia/x:1"}),
    ("cpu-headroom", "-c 200", {}),
    ("memory-headroom", "--mem=4T", {}),
    ("gpu-headroom", "--gpus=16", {}),
    ("shm-counts-as-memory", "--mem=4G", {}),
    ("mount-twice", "--container-mounts=/lustre/a:/x,/lustre/b:/x", {}),
    ("host-path", "--container-mounts=/scratch/a:/x", {}),
    ("output-unmounted", "-o /nowhere/x.out", {}),
    ("kueue-requeues-always", "--no-requeue", {}),
    ("kueue-preemption", "-q normal", {}),
    ("export-unset", "--export=NOPE", {}),
    ("fewer-nodes", "-N4 -n2", {}),
    ("dra-mapping", "-p nvl72 --gpus=4", {}),
    ("approx-nodes-range", "-N2-4", {}),
    ("approx-one-node", "-n4", {}),
    ("approx-dependency", "-d afterok:1", {}),
    ("approx-array", "-a 0-3%1 -N2", {}),
    ("approx-image-user", "", {"image": "bob@nvcr.io#a/b:1"}),
    ("approx-remap-root", "--container-remap-root", {}),
    ("approx-gpus-uneven", "-N2 -n3 --gpus-per-task=1", {}),
    ("ignored-mount", "--container-mounts=/etc/slurm", {}),
    ("ignored-mount-option", "--container-mounts=/lustre:/x:noexec", {}),
    ("ignored-container-name", "--container-name=x", {}),
    ("ignored-import-timeout", "--container-import-timeout=5", {}),
    ("ignored-wckey", "--wckey=x", {}),
])  # fmt: skip
def test_warnings_and_approximations_are_noted(
    code: str, options: str, how: dict[str, Any]
) -> None:
    result = render(script(*([options] if options else []), **how))
    assert code in {note.code for note in result.notes}


@pytest.mark.parametrize(("code", "target", "gpu_api"), [
    ("approx-bridge-gpus", "slurm-bridge", "device-plugin"),
    ("approx-bridge-dra", "slurm-bridge", "dra"),
    ("approx-volcano-dra-extended", "volcano", "dra-extended"),
    ("approx-requeue-pod", "kueue-job", "device-plugin"),
    ("dra-mapping", "kueue", "dra"),
    ("dra-mapping", "kueue-job", "dra-extended"),
])  # fmt: skip
def test_combinations_that_are_not_quite_the_same_are_noted(
    code: str, target: Any, gpu_api: Any
) -> None:
    result = render(script("--gpus-per-node=8", "-N2"), target=target, gpu_api=gpu_api)
    assert code in {note.code for note in result.notes}


@pytest.mark.parametrize(("options", "image", "code", "way_out"), [
    ("--gpus=16", "ubuntu:1", "gpu-headroom", "name --nodes: without it a job has one pod; or"),
    ("-N2 -c 200", "ubuntu:1", "cpu-headroom", "ask for less, or correct the profile"),
    ("-n 4", "docker://nvcr.io/nvidia/x:1", "image-registry-separator",
     "nvcr.io#nvidia/x:1, if nvcr.io is one"),
])  # fmt: skip
def test_warnings_tell_what_to_write_instead(
    options: str, image: str, code: str, way_out: str
) -> None:
    (note,) = [note for note in render(script(options, image=image)).notes if note.code == code]
    assert note.way_out.startswith(way_out)


def test_pods_that_are_left_away_are_not_said_to_be_there() -> None:
    notes = [note for note in render(script("-N4 -n2")).notes if note.option == "--nodes"]
    assert [note.code for note in notes] == ["fewer-nodes"]
