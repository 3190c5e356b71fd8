"""The golden manifests: what is rendered for which command line, and their files.

`python -m tests.kubernetes.goldens` writes the files anew; read the difference before committing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyxis_py.kubernetes.pod.context import GPU_APIS, TARGETS, GpuApi, Target
from pyxis_py.kubernetes.render.manifest_text import dump_manifests
from pyxis_py.kubernetes.render.render import Rendering
from tests.kubernetes.samples import PROFILE, SCRIPT, render, script, site, without

FOLDER = Path(__file__).with_name("golden")
FLAT = without(SCRIPT, "segment").replace("--partition=h100", "--partition=flat")
RDMA = "kind: dra, deviceClass: rdma.example.org, environment: {NCCL_DEBUG: INFO}"


def training_job(target: Target, gpu_api: GpuApi) -> Rendering:
    """The 64-node job; without topology where Kueue cannot combine it with DRA."""
    topology = gpu_api == "device-plugin" or not target.startswith("kueue")
    return render(SCRIPT if topology else FLAT, target=target, gpu_api=gpu_api)


def _pairs() -> Rendering:
    text = PROFILE.replace('kind: shared, resources: {rdma/hca: "8"}, environment: '
                           "{NCCL_SOCKET_IFNAME: eth0}", RDMA)  # fmt: skip
    return render(FLAT, target="volcano", gpu_api="dra", profile=site(text))


ARRAY = script("--array=1-7:2%2", "-t 60", "-p flat", "-c 4")
WIDE_ARRAY = script("--array=0,5", "-N2", "-t 60", "-p flat", "-c 4", "--gpus-per-node=8")

OTHERS: dict[str, Callable[[], Rendering]] = {
    "kueue-compute-domain": lambda: render(
        script("-N18", "-p nvl72", "--gpus-per-node=4", "--exclusive")
    ),
    "kueue-array": lambda: render(ARRAY),
    "kueue-array-of-jobs": lambda: render(WIDE_ARRAY),
    "volcano-array": lambda: render(WIDE_ARRAY, target="volcano"),
    "volcano-gpu-and-nic": _pairs,
    "kueue-launcher": lambda: render(script("-p cpu"), launcher=b"PK\5\6" + bytes(18)),
    "kueue-python": lambda: render(script("-p cpu", "--mem=2G"), bring_python=True),
    "kueue-held": lambda: render(
        script("-p cpu", "-H", "-d afterok:12:13_4,singleton", "--no-requeue", "--comment=why")
    ),
    "slurm-bridge-all": lambda: render(
        script("-N4", "-p a,b", "-A x", "-q y", "-C hbm80&ib|fast", "-L matlab:2", "--wckey=w",
               "--reservation=r", "--exclusive", "-c 2", "--mem=1G", "-t 90"),
        target="slurm-bridge", profile=site("{version: 1, partitions: {a: {queue: a, node: "
                                            "{cpus: 8, memory: 32Gi}}}, "
                                            "qos: {y: {priorityClass: y}}}"),
    ),
}  # fmt: skip


def renderings() -> dict[str, Callable[[], Rendering]]:
    """Every golden file's name and what is in it."""
    found: dict[str, Callable[[], Rendering]] = {}
    for target in TARGETS:
        for gpu_api in GPU_APIS:
            found[f"{target}-{gpu_api}"] = lambda t=target, g=gpu_api: training_job(t, g)  # type: ignore[misc]
    return {**found, **OTHERS}


def main() -> None:
    """Write the files."""
    for name, make in renderings().items():
        text = dump_manifests(make().manifests)
        (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
