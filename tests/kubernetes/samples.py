"""The job and the site that tests of the renderers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyxis_py.kubernetes.pod.context import GpuApi, RenderOptions, Submitter, Target
from pyxis_py.kubernetes.profile.reader import parse_profile
from pyxis_py.kubernetes.profile.site import Profile
from pyxis_py.kubernetes.render.render import Rendering, render_job
from pyxis_py.kubernetes.spec.job_reader import read_job

SCRIPT = r"""#!/bin/bash
#SBATCH --job-name=llama-pretrain
#SBATCH --account=foundation
#SBATCH --partition=h100
#SBATCH --qos=high
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=176
#SBATCH --mem=1800G
#SBATCH --time=3-00:00:00
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --segment=16
#SBATCH --output=/lustre/logs/%x-%j.out
#SBATCH --container-image=nvcr.io\#nvidia/pytorch:25.06-py3
#SBATCH --container-mounts=/lustre/datasets:/data:ro,/lustre/ckpt:/ckpt,/home/user1/llama:/workspace
#SBATCH --container-workdir=/workspace
#SBATCH --container-env=NCCL_DEBUG

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export NCCL_DEBUG=WARN

srun --kill-on-bad-exit=1 bash -c '
  torchrun --nnodes=$SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE \
           --node-rank=$SLURM_NODEID --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT \
           train.py --config configs/llama-70b.yaml --resume auto'
"""

PROFILE = """
version: 1
cluster: {name: training, namespace: default, partition: flat, pythonImage: python:3.12-slim}
accounts: {foundation: {namespace: foundation}}
partitions:
  h100:
    queue: h100
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    node: {cpus: 176, memory: 1800Gi, gpus: 8}
    topology:
      levels: [fabric.example.org/block, fabric.example.org/leaf]
      switchesTier: 1
      segmentTier: 1
    maxTime: 7-00:00:00
  flat:
    queue: h100-dra
    node: {cpus: 176, memory: 1800Gi, gpus: 8}
  nvl72:
    queue: gb200
    node: {cpus: 144, memory: 900Gi, gpus: 4}
    computeDomain: true
  cpu:
    queue: cpu
    tolerations: [{key: site.example.org/cpu, operator: Exists, effect: NoSchedule}]
    guaranteed: true
qos:
  high: {workloadPriorityClass: qos-high, priorityClass: qos-high}
  normal: {graceSeconds: 900, preemptible: false}
features:
  hbm80: {label: nvidia.com/gpu.memory, values: ["81559"]}
  ib: {label: fabric.example.org/ib, values: [ndr, hdr]}
gres:
  gpu:
    types:
      h100:
        nodeLabels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        selector: device.attributes['gpu.nvidia.com'].productName.lowerAscii().contains('h100')
  fpga: {resource: site.example.org/fpga}
reservations:
  maintenance: {nodeSelector: {site.example.org/reservation: maintenance}}
mounts:
  - {path: /lustre, name: lustre, pvc: lustre}
  - {path: /home, name: home, nfs: {server: nfs.example.org, path: /home}}
  - {path: /scratch, name: scratch, hostPath: /scratch}
  - {path: /opt/data, name: data, image: registry.example.org/data:1, submounts: true}
registries:
  nvcr.io: {pullSecret: nvcr-io, users: {alice: alice-nvcr}}
fabric: {kind: shared, resources: {rdma/hca: "8"}, environment: {NCCL_SOCKET_IFNAME: eth0}}
security: {hostPaths: [/scratch, /srv]}
"""

SUBMITTER = Submitter("user1", 20001, 20001, (30010,), "/home/user1", "login1", "/home/user1/llama")
JOB_ID = 412803917
TOKEN = "0123456789abcdef" * 4


def site(text: str = PROFILE) -> Profile:
    """The sample profile, or another one."""
    return parse_profile(text, origin="profile.yaml")


def without(script: str, *options: str) -> str:
    """A script without some of its #SBATCH lines."""
    return "".join(
        line
        for line in script.splitlines(keepends=True)
        if not any(line.startswith(f"#SBATCH --{option}") for option in options)
    )


def script(*options: str, body: str = "srun true\n", image: str = "docker://ubuntu:24.04") -> str:
    """A short script with these options."""
    lines = [f"#SBATCH {option}" for option in options]
    if image:
        lines.append(f"#SBATCH --container-image={image}")
    return "\n".join(("#!/bin/sh", *lines, "", body))


def render(
    text: str = SCRIPT,
    words: Sequence[str] = (),
    *,
    target: Target = "kueue",
    gpu_api: GpuApi = "device-plugin",
    profile: Profile | None = None,
    environ: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    **options: Any,
) -> Rendering:
    """Render a script for the sample site."""
    variables = dict(environ or {})
    job, ledger = read_job([*words, "job.sbatch"], lambda path: text, variables, allow=allow)
    settings: dict[str, Any] = {
        "job_id": JOB_ID, "token": TOKEN, "submitter": SUBMITTER, "environ": variables, **options,
    }  # fmt: skip
    return render_job(
        job, site() if profile is None else profile, RenderOptions(target, gpu_api, **settings),
        ledger,
    )  # fmt: skip


def find(rendering: Rendering, kind: str) -> dict[str, Any]:
    """The first manifest of a kind."""
    return next(manifest for manifest in rendering.manifests if manifest["kind"] == kind)


def pod(rendering: Rendering) -> dict[str, Any]:
    """The first pod template."""
    from pyxis_py.kubernetes.render.validate import pod_templates

    return next(
        template for manifest in rendering.manifests for _, template in pod_templates(manifest)
    )


def container(rendering: Rendering) -> dict[str, Any]:
    """The first pod template's container."""
    return dict(pod(rendering)["spec"]["containers"][0])


def variables(rendering: Rendering) -> dict[str, str]:
    """Variables of the container that have a value."""
    return {row["name"]: row["value"] for row in container(rendering)["env"] if "value" in row}
