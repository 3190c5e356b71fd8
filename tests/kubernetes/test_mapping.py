"""Every row of the mapping tables: what an option becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyxis_py.kubernetes.render.render import Rendering
from tests.kubernetes.samples import (
    PROFILE,
    container,
    find,
    pod,
    render,
    script,
    site,
    variables,
)

Look = Callable[[Rendering], Any]
DEVICE = "device.attributes['gpu.nvidia.com']"
TAS = "kueue.x-k8s.io/podset-"


def job_file(result: Rendering) -> dict[str, Any]:
    return dict(json.loads(result.manifests[0]["data"]["job.json"]))


def job_spec(result: Rendering) -> dict[str, Any]:
    return dict(find(result, "JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"])


def mounts(result: Rendering) -> dict[str, dict[str, Any]]:
    rows = container(result)["volumeMounts"]
    return {row["mountPath"]: {k: v for k, v in row.items() if k != "mountPath"} for row in rows}


def volume(name: str) -> Look:
    return lambda result: next(v for v in pod(result)["spec"]["volumes"] if v["name"] == name)


def env(name: str) -> Look:
    return lambda result: variables(result).get(name)


def requests(result: Rendering) -> dict[str, str]:
    return dict(container(result)["resources"]["requests"])


def annotations(result: Rendering) -> dict[str, str]:
    return dict(result.manifests[-1]["metadata"]["annotations"])


def labels(result: Rendering) -> dict[str, str]:
    return dict(result.manifests[-1]["metadata"]["labels"])


def topology(result: Rendering) -> dict[str, str]:
    return dict(pod(result)["metadata"].get("annotations", {}))


def terms(result: Rendering) -> Any:
    affinity = pod(result)["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def volcano(*path: str) -> Look:
    def look(result: Rendering) -> Any:
        node: Any = result.manifests[-1]["spec"]
        for key in path:
            node = node[int(key) if isinstance(node, list) else key]
        return node

    return look


ROWS: list[tuple[str, Look, Any]] = [
    # sbatch → pod and job
    ("-J My_Job.1", lambda r: labels(r)["app.kubernetes.io/name"], "my-job-1"),
    ("-J 9lives", lambda r: r.manifests[-1]["metadata"]["name"], "j9lives-412803917"),
    ("-J My_Job.1", env("SLURM_JOB_NAME"), "My_Job.1"),
    ("-N 4", lambda r: job_spec(r)["completions"], 4),
    ("-N 2-4", lambda r: job_spec(r)["parallelism"], 4),
    ("-N 4", lambda r: "podAntiAffinity" in pod(r)["spec"]["affinity"], True),
    ("-N 4 --gpus-per-node=8", lambda r: "affinity" in pod(r)["spec"], False),
    ("-N 4 -n 10", env("SLURM_TASKS_PER_NODE"), "3(x2),2(x2)"),
    ("-N 4 -n 10", env("SLURM_NTASKS"), "10"),
    ("-N 2 --ntasks-per-node=8", env("SLURM_NTASKS"), "16"),
    ("-N 8 -n 2", env("SLURM_NNODES"), "2"),
    ("-n 9 --ntasks-per-node=4", env("SLURM_NNODES"), "3"),
    ("-c 4 --ntasks-per-node=8", lambda r: requests(r)["cpu"], "32"),
    ("-c 4", env("SLURM_CPUS_PER_TASK"), "4"),
    ("-n 1", env("SLURM_CPUS_PER_TASK"), None),
    ("-c 4 -p cpu", lambda r: container(r)["resources"]["limits"], {"cpu": "4"}),
    ("--mincpus=16", lambda r: requests(r)["cpu"], "16"),
    ("--mem=1800G", lambda r: requests(r)["memory"], "1800Gi"),
    ("--mem=1000", lambda r: requests(r)["memory"], "1000Mi"),
    ("--mem=0", lambda r: requests(r)["memory"], "1800Gi"),
    ("--mem-per-cpu=2G -c 4", lambda r: requests(r)["memory"], "8Gi"),
    ("--mem-per-gpu=10G --gpus=2", lambda r: requests(r)["memory"], "20Gi"),
    ("--mem-per-cpu=2G", env("SLURM_MEM_PER_CPU"), "2048"),
    ("--gpus-per-node=8", lambda r: requests(r)["nvidia.com/gpu"], "8"),
    ("--gpus-per-node=h100:8", lambda r: pod(r)["spec"]["nodeSelector"],
     {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
    ("--gres=gpu:2", lambda r: requests(r)["nvidia.com/gpu"], "2"),
    ("--gres=gpu:1g.10gb:2", lambda r: requests(r)["nvidia.com/mig-1g.10gb"], "2"),
    ("--gres=fpga:1", lambda r: requests(r)["site.example.org/fpga"], "1"),
    ("-N 4 -G 32", lambda r: requests(r)["nvidia.com/gpu"], "8"),
    ("--gpus-per-task=2 --ntasks-per-node=4", lambda r: requests(r)["nvidia.com/gpu"], "8"),
    ("--ntasks-per-gpu=2 -n 8", lambda r: requests(r)["nvidia.com/gpu"], "4"),
    ("--ntasks-per-gpu=2 --gpus=4", env("SLURM_NTASKS"), "8"),
    ("--cpus-per-gpu=16 --gpus=2", lambda r: requests(r)["cpu"], "32"),
    ("--gpus=2", env("SLURM_JOB_GPUS"), "0,1"),
    ("--gpu-bind=closest", lambda r: job_file(r)["options"], {"gpu-bind": "closest"}),
    ("-t 90", lambda r: job_spec(r)["activeDeadlineSeconds"], 5460),
    ("-t 0", lambda r: "activeDeadlineSeconds" in job_spec(r), False),
    ("-p h100", lambda r: job_spec(r)["activeDeadlineSeconds"], 604860),
    ("--signal=B:USR1@600", lambda r: pod(r)["spec"]["terminationGracePeriodSeconds"], 600),
    ("--signal=B:USR1@600", lambda r: job_file(r)["signal"],
     {"name": "USR1", "seconds": 600, "batchOnly": True}),
    ("-p cpu", lambda r: labels(r)["kueue.x-k8s.io/queue-name"], "cpu"),
    ("-p cpu", lambda r: pod(r)["spec"]["tolerations"],
     [{"key": "site.example.org/cpu", "operator": "Exists", "effect": "NoSchedule"}]),
    ("-q high", lambda r: labels(r)["kueue.x-k8s.io/priority-class"], "qos-high"),
    ("-q high", lambda r: pod(r)["spec"]["priorityClassName"], "qos-high"),
    ("-q normal", lambda r: pod(r)["spec"]["terminationGracePeriodSeconds"], 900),
    ("-A foundation", lambda r: r.manifests[-1]["metadata"]["namespace"], "foundation"),
    ("-A foundation", env("SLURM_JOB_ACCOUNT"), "foundation"),
    ("-C hbm80&ib", terms, [{"matchExpressions": [
        {"key": "nvidia.com/gpu.memory", "operator": "In", "values": ["81559"]},
        {"key": "fabric.example.org/ib", "operator": "In", "values": ["ndr", "hdr"]}]}]),
    ("-C hbm80|ib -x n1", lambda r: [len(t["matchExpressions"]) for t in terms(r)], [2, 2]),
    ("-w n[1-2] -N 2", terms, [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}]}]),
    ("-w n[1-2]", env("SLURM_NNODES"), "2"),
    ("-x n3", terms, [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n3"]}]}]),
    ("--exclusive", requests, {"cpu": "176", "memory": "1800Gi", "nvidia.com/gpu": "8",
                               "rdma/hca": "8"}),
    ("-N4 -p h100 --switches=1", topology,
     {f"{TAS}required-topology": "fabric.example.org/leaf"}),
    ("-N4 -p h100 --switches=1@60", topology,
     {f"{TAS}preferred-topology": "fabric.example.org/leaf"}),
    ("-N4 -p h100", topology, {f"{TAS}preferred-topology": "fabric.example.org/block"}),
    ("-N4 -p flat", topology, {}),
    ("-N4 -p h100 --segment=2", topology, {
        f"{TAS}preferred-topology": "fabric.example.org/block",
        f"{TAS}slice-required-topology": "fabric.example.org/leaf", f"{TAS}slice-size": "2"}),
    ("-a 1-7:2%2", lambda r: (r.manifests[-1]["kind"], r.manifests[-1]["spec"]["completions"],
                              r.manifests[-1]["spec"]["parallelism"]), ("Job", 4, 2)),
    ("-a 1-7:2%2", lambda r: job_file(r)["arrayIndices"], [1, 3, 5, 7]),
    ("-a 1-7:2%2", env("SLURM_ARRAY_TASK_STEP"), "2"),
    ("-a 3,5 -N2", lambda r: [m["metadata"]["name"] for m in r.manifests[2:]],
     ["job-sbatch-412803917-a3", "job-sbatch-412803917-a5"]),
    ("-a 3,5 -N2", env("SLURM_ARRAY_TASK_ID"), "3"),
    ("-a 3,5 -N2", env("SLURM_JOB_ID"), "412803917"),
    ("-d afterok:12", lambda r: annotations(r)["kueue.x-k8s.io/admission-gated-by"],
     "pyxis/dep-12"),
    ("-H", lambda r: annotations(r)["kueue.x-k8s.io/admission-gated-by"], "pyxis/hold"),
    ("--no-requeue", lambda r: [row["action"] for row in
                                find(r, "JobSet")["spec"]["failurePolicy"]["rules"]],
     ["FailJobSet"] * 3),
    ("--requeue", lambda r: find(r, "JobSet")["spec"]["failurePolicy"]["rules"][1]["action"],
     "RestartJobSetAndIgnoreMaxRestarts"),
    ("-o /lustre/logs/%x/%j.out", lambda r: mounts(r)["/lustre/logs"],
     {"name": "lustre", "subPath": "logs"}),
    ("-o x.out -D /lustre/run", lambda r: job_file(r)["output"], "/lustre/run/x.out"),
    ("-e /lustre/err/e", lambda r: mounts(r)["/lustre/err"], {"name": "lustre", "subPath": "err"}),
    ("-i /lustre/in", lambda r: job_file(r)["options"], {"input": "/lustre/in"}),
    ("--open-mode=append", lambda r: job_file(r)["options"], {"open-mode": "append"}),
    ("-D /lustre/run", lambda r: container(r)["workingDir"], "/lustre/run"),
    ("--comment=why", lambda r: annotations(r)["pyxis/comment"], "why"),
    ("--reservation=maintenance", lambda r: pod(r)["spec"]["nodeSelector"],
     {"site.example.org/reservation": "maintenance"}),
    ("--tmp=10G", lambda r: (requests(r)["ephemeral-storage"], mounts(r)["/tmp"]),
     ("10Gi", {"name": "tmp"})),
    ("--hint=nomultithread", lambda r: job_file(r)["options"], {"hint": "nomultithread"}),
    ("--uid=7 --gid=8", lambda r: pod(r)["spec"]["securityContext"]["runAsUser"], 7),
    # pyxis → pod
    ("--container-mounts=/lustre/a:/data:ro", lambda r: mounts(r)["/data"],
     {"name": "lustre", "readOnly": True, "subPath": "a"}),
    ("--container-mounts=/lustre", lambda r: mounts(r)["/lustre"], {"name": "lustre"}),
    ("--container-mounts=/lustre/a:/a,/lustre/b:/b", volume("lustre"),
     {"name": "lustre", "persistentVolumeClaim": {"claimName": "lustre"}}),
    ("--container-mounts=/home/u/x:/x", volume("home"),
     {"name": "home", "nfs": {"server": "nfs.example.org", "path": "/home"}}),
    ("--container-mounts=/scratch/x:/x", volume("scratch"),
     {"name": "scratch", "hostPath": {"path": "/scratch", "type": "Directory"}}),
    ("--container-mounts=/srv/f:/x", volume("host-0"),
     {"name": "host-0", "hostPath": {"path": "/srv/f", "type": ""}}),
    ("--container-mounts=/opt/data:/x:ro", lambda r: mounts(r)["/x"],
     {"name": "data", "readOnly": True, "recursiveReadOnly": "IfPossible"}),
    ("--container-mounts=/lustre/a:/x:rslave", lambda r: mounts(r)["/x"]["mountPropagation"],
     "HostToContainer"),
    ("--container-mounts=./sub:/x", lambda r: mounts(r)["/x"],
     {"name": "home", "subPath": "user1/llama/sub"}),
    ("--container-mounts=tmpfs:/x", volume("tmpfs-0"),
     {"name": "tmpfs-0", "emptyDir": {"medium": "Memory"}}),
    ("--container-mounts=/lustre/a:/x,/lustre/b:/x", lambda r: mounts(r)["/x"]["subPath"], "b"),
    ("--container-mounts=/etc/slurm,/dev/shm:/dev/shm", lambda r: "/etc/slurm" in mounts(r), False),
    ("--container-mounts=/lustre/../home/u:/x", lambda r: mounts(r)["/x"]["subPath"], "u"),
    ("--container-workdir=/w", lambda r: container(r)["workingDir"], "/w"),
    ("--container-workdir=/w -D /lustre/x", lambda r: container(r)["workingDir"], "/w"),
    ("--container-mount-home", lambda r: mounts(r)["/home/user1"],
     {"name": "home", "subPath": "user1"}),
    ("--container-remap-root", lambda r: pod(r)["spec"]["securityContext"],
     {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}),
    ("--no-container-remap-root", lambda r: pod(r)["spec"]["securityContext"]["runAsUser"], 20001),
    ("--container-entrypoint", lambda r: "command" in container(r), False),
    ("--no-container-entrypoint", lambda r: container(r)["command"][0], "python3"),
    ("--container-readonly", lambda r: (
        container(r)["securityContext"]["readOnlyRootFilesystem"], "/tmp" in mounts(r)),
     (True, True)),
    ("--container-writable", lambda r: container(r)["securityContext"]["readOnlyRootFilesystem"],
     False),
    ("--container-env=A,B", lambda r: job_file(r)["containerEnv"], ["A", "B"]),
    ("--container-unshare=net", lambda r: "hostNetwork" in pod(r)["spec"], False),
    ("--mem=8G", volume("shm"), {"name": "shm", "emptyDir": {"medium": "Memory",
                                                            "sizeLimit": "2Gi"}}),
    ("-n 1", volume("shm"), {"name": "shm", "emptyDir": {"medium": "Memory"}}),
    # the pod's defaults
    ("-n 1", lambda r: (pod(r)["spec"]["enableServiceLinks"],
                        pod(r)["spec"]["automountServiceAccountToken"]), (False, False)),
    ("-N 4", env("SLURM_JOB_NODELIST"), "job-sbatch-412803917-n-0-[0-3]"),
    ("-n 1", env("SLURM_JOB_NODELIST"), "job-sbatch-412803917-n-0-0"),
    ("--gpus=1", env("NCCL_SOCKET_IFNAME"), "eth0"),
    ("-n 1", env("NCCL_SOCKET_IFNAME"), None),
    ("-p nvl72 --gpus=4 -N2", lambda r: find(r, "ComputeDomain")["spec"]["numNodes"], 0),
    ("-p nvl72 --gpus=4 -N2", lambda r: pod(r)["spec"]["resourceClaims"],
     [{"name": "imex", "resourceClaimTemplateName": "job-sbatch-412803917-imex"}]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "look", "expected"), ROWS)
def test_an_option_under_kueue(options: str, look: Look, expected: Any) -> None:
    assert look(render(script(*_lines(options)))) == expected


def _lines(options: str) -> list[str]:
    """Options of one line; `&`, `|` and brackets need no quotes in #SBATCH."""
    return [options]


VOLCANO_ROWS: list[tuple[str, Look, Any]] = [
    ("-N 4", volcano("minAvailable"), 4),
    ("-N 4", env("SLURM_JOB_NODELIST"), "job-sbatch-412803917-n-[0-3]"),
    ("-p a,b", volcano("queue"), "a"),
    ("-q high", volcano("priorityClassName"), "qos-high"),
    ("-q high", lambda r: annotations(r)["volcano.sh/preemptable"], "true"),
    ("-q normal", lambda r: "volcano.sh/preemptable" in annotations(r), False),
    ("-t 90 --signal=USR1@100", lambda r: pod(r)["spec"]["activeDeadlineSeconds"], 6100),
    ("--no-requeue", lambda r: [p["action"] for p in volcano("policies")(r)],
     ["TerminateJob"] * 4 + ["CompleteJob"]),
    ("--requeue", lambda r: [p["action"] for p in volcano("policies")(r)],
     ["TerminateJob", "RestartJob", "RestartJob", "TerminateJob", "CompleteJob"]),
    ("-N4 -p h100", volcano("networkTopology"), {"mode": "soft"}),
    ("-N4 -p h100 --switches=1", volcano("networkTopology"),
     {"mode": "hard", "highestTierAllowed": 1}),
    ("-N4 -p h100 --switches=1@60", volcano("networkTopology"), {"mode": "soft"}),
    ("-N4 -p h100 --segment=2", volcano("tasks", "0", "partitionPolicy"),
     {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 2,
      "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}),
    ("-a 3,5", lambda r: [m["metadata"]["name"] for m in r.manifests[2:]],
     ["job-sbatch-412803917-a3", "job-sbatch-412803917-a5"]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "look", "expected"), VOLCANO_ROWS)
def test_an_option_under_volcano(options: str, look: Look, expected: Any) -> None:
    profile = site(PROFILE.replace("  cpu:\n", "  a: {queue: a}\n  cpu:\n"))
    assert look(render(script(options), target="volcano", profile=profile)) == expected


BRIDGE_ROWS: list[tuple[str, Look, Any]] = [
    ("-A foundation", lambda r: find(r, "PodGroup")["metadata"]["annotations"],
     {"slurmjob.slinky.slurm.net/" + k: v for k, v in {
         "job-name": "job.sbatch", "account": "foundation", "partition": "flat",
         "min-nodes": "1", "max-nodes": "1"}.items()}),
    ("-L m:1", lambda r: find(r, "PodGroup")["metadata"]["annotations"][
        "slurmjob.slinky.slurm.net/licenses"], "m:1"),
    ("-t 1-0", lambda r: find(r, "PodGroup")["metadata"]["annotations"][
        "slurmjob.slinky.slurm.net/timelimit"], "1440"),
    ("-N 4", lambda r: find(r, "PodGroup")["spec"], {"minMember": 4}),
    ("-N 4", lambda r: pod(r)["spec"]["schedulerName"], "slurm-bridge-scheduler"),
    ("-N 4", lambda r: pod(r)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"],
     "job-sbatch-412803917"),
    ("-N 4", lambda r: "suspend" in find(r, "Job")["spec"], False),
    ("-N 4", lambda r: [k for k in labels(r) if "kueue" in k], []),
    ("-n 1", lambda r: next(e for e in container(r)["env"] if e["name"] == "SLURM_JOB_ID"),
     {"name": "SLURM_JOB_ID", "valueFrom": {"fieldRef": {
         "fieldPath": "metadata.labels['scheduler.slinky.slurm.net/slurm-jobid']"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "look", "expected"), BRIDGE_ROWS)
def test_an_option_under_slurm_bridge(options: str, look: Look, expected: Any) -> None:
    assert look(render(script(options), target="slurm-bridge")) == expected


def test_slurm_bridge_counts_the_driver_s_devices() -> None:
    result = render(script("--gpus=8"), target="slurm-bridge", gpu_api="dra-extended")
    assert requests(result)["deviceclass.resource.kubernetes.io/gpu.nvidia.com"] == "8"


@pytest.mark.parametrize(("options", "selector"), [
    ("--gpus=8", None),
    ("--gpus=h100:8", f"{DEVICE}.productName.lowerAscii().contains('h100')"),
    ("--gres=gpu:1g.10gb:2", f"{DEVICE}.profile == '1g.10gb'"),
])  # fmt: skip
def test_gpus_are_claimed_by_selector(options: str, selector: str | None) -> None:
    result = render(script(options), gpu_api="dra")
    devices = find(result, "ResourceClaimTemplate")["spec"]["spec"]["devices"]
    exactly = devices["requests"][0]["exactly"]
    assert exactly.get("selectors") == ([{"cel": {"expression": selector}}] if selector else None)
    assert exactly["deviceClassName"] == ("mig.nvidia.com" if "1g" in options else "gpu.nvidia.com")
    assert container(result)["resources"]["claims"] == [{"name": "gpu"}]


IMAGES = [
    ("ubuntu", "docker.io/library/ubuntu:latest", None),
    ("docker://nvidia/cuda:12.4.1", "docker.io/nvidia/cuda:12.4.1", None),
    ("nvcr.io#nvidia/pytorch:25.06-py3", "nvcr.io/nvidia/pytorch:25.06-py3", "nvcr-io"),
    (r"nvcr.io\#nvidia/pytorch:1", "nvcr.io/nvidia/pytorch:1", "nvcr-io"),
    ("alice@nvcr.io#nvidia/x:1", "nvcr.io/nvidia/x:1", "alice-nvcr"),
    ("bob@nvcr.io#nvidia/x:1", "nvcr.io/nvidia/x:1", "nvcr-io"),
    ("localhost:5000#a/b:1", "localhost:5000/a/b:1", None),
    ("a/b@sha256:" + "1" * 64, "docker.io/a/b@sha256:" + "1" * 64, None),
]


@pytest.mark.parametrize(("given", "image", "secret"), IMAGES)
def test_an_image_and_its_pull_secret(given: str, image: str, secret: str | None) -> None:
    result = render(script(image=given))
    assert container(result)["image"] == image
    secrets = pod(result)["spec"].get("imagePullSecrets")
    assert secrets == ([{"name": secret}] if secret else None)


def test_the_image_of_srun_is_the_pod_s() -> None:
    result = render(script(image="", body="srun --container-image=nvcr.io#a/b:1 x\n"))
    assert container(result)["image"] == "nvcr.io/a/b:1"
    assert "approx-srun-image" in {note.code for note in result.notes}


FABRICS = [
    ("{kind: host}", lambda r: (pod(r)["spec"]["hostNetwork"], pod(r)["spec"]["dnsPolicy"]),
     (True, "ClusterFirstWithHostNet")),
    ("{kind: host, privileged: true}", lambda r: container(r)["securityContext"],
     {"privileged": True}),
    ("{kind: shared, resources: {rdma/a: '1'}}", lambda r: requests(r)["rdma/a"], "1"),
    ("{kind: sriov, resources: {a/vf: '1'}, annotations: {k8s.v1.cni.cncf.io/networks: n/a}}",
     topology, {"k8s.v1.cni.cncf.io/networks": "n/a"}),
    ("{kind: efa, resources: {vpc.amazonaws.com/efa: '4', hugepages-2Mi: 5Gi}}",
     lambda r: (requests(r)["vpc.amazonaws.com/efa"], requests(r)["hugepages-2Mi"]), ("4", "5Gi")),
    ("{kind: gke, annotations: {networking.gke.io/interfaces: '[]'}}", topology,
     {"networking.gke.io/interfaces": "[]"}),
    ("{kind: none}", lambda r: container(r)["securityContext"]["capabilities"], {"drop": ["ALL"]}),
    ("{kind: shared}", lambda r: container(r)["securityContext"]["capabilities"]["add"],
     ["IPC_LOCK"]),
]  # fmt: skip


@pytest.mark.parametrize(("fabric", "look", "expected"), FABRICS)
def test_a_fabric(fabric: str, look: Look, expected: Any) -> None:
    profile = site(f"{{version: 1, fabric: {fabric}}}")
    assert look(render(script("--gpus=8"), profile=profile)) == expected


NESTED = """{version: 1, mounts: [{path: /a, name: a, pvc: a}, {path: /a/b, name: b, pvc: b},
{path: /a/b/c, name: c, pvc: c}, {path: /, name: root, pvc: root}]}"""


@pytest.mark.parametrize(("source", "name", "inside"), [
    ("/a/x", "a", "x"), ("/a/b", "b", None), ("/a/b/x", "b", "x"), ("/a/b/c/d", "c", "d"),
    ("/a/bc", "a", "bc"), ("/z", "root", "z"),
])  # fmt: skip
def test_the_longest_path_of_the_profile_wins(source: str, name: str, inside: str | None) -> None:
    result = render(script(f"--container-mounts={source}:/x"), profile=site(NESTED))
    mount = mounts(result)["/x"]
    assert (mount["name"], mount.get("subPath")) == (name, inside)


@pytest.mark.parametrize("allowed", [True, False])
def test_root_in_a_user_namespace_where_the_site_has_them(allowed: bool) -> None:
    profile = site(f"{{version: 1, security: {{userNamespaces: {str(allowed).lower()}}}}}")
    spec = pod(render(script("--container-remap-root"), profile=profile))["spec"]
    assert spec.get("hostUsers") is (False if allowed else None)
    assert spec["securityContext"]["runAsUser"] == 0


def test_host_names_are_translated() -> None:
    profile = site("{version: 1, cluster: {hostnames: {n1: node-1.example.org}}}")
    (term,) = terms(render(script("-w n1"), profile=profile))
    assert term["matchExpressions"][0]["values"] == ["node-1.example.org"]


def test_a_registry_is_rewritten() -> None:
    profile = site("{version: 1, registries: {nvcr.io: {rewrite: mirror.example.org/nvcr}}}")
    result = render(script(image="nvcr.io#nvidia/x:1"), profile=profile)
    assert container(result)["image"] == "mirror.example.org/nvcr/nvidia/x:1"


def test_a_digest_pins_the_image() -> None:
    digest = "sha256:" + "a" * 64
    result = render(script(f"--container-digest={digest}", image="ubuntu:24.04"))
    assert container(result)["image"] == f"docker.io/library/ubuntu:24.04@{digest}"
    assert "image-latest-tag" not in {note.code for note in result.notes}
