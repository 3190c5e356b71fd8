"""The pod template that all targets share: one container, the launcher's node agent.

Pure. Source: Kubernetes API, PodSpec.
"""

from __future__ import annotations

from typing import Any

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.devices import Devices, channel_name, uses_fabric
from pyxis_py.kubernetes.pod.environment import pod_environment
from pyxis_py.kubernetes.pod.images import pod_image
from pyxis_py.kubernetes.pod.placement import affinity, node_selector, tolerations
from pyxis_py.kubernetes.pod.python_bundle import add_python, interpreter
from pyxis_py.kubernetes.pod.volumes import LAUNCHER_PATH, mebibytes, pod_volumes

CONTROL_PORT = 6818
"""Where agents listen: slurmd's port, which nothing in a pod uses."""
COMMAND = [f"{LAUNCHER_PATH}/launcher.pyz", "node"]
"""What Python runs."""


def note_container(context: Context) -> None:
    """Note what became of the --container-* flags that are not volumes, image or directory."""
    container, ledger = context.job.container, context.ledger
    if container.name and not container.image:
        ledger.refuse("container-name", "--container-name", "a container of an earlier job")
    elif container.name:
        ledger.ignore("container-name", "--container-name", "a pod's files last as long as the job")
    if container.save:
        ledger.refuse("container-save", "--container-save", "a pod's files cannot be saved")
    for option, value in (
        ("container-gpus", container.gpus),
        ("container-device", container.devices),
        ("environment", container.environment),
    ):
        if value:
            text = "devices and files of the nodes are not known where manifests are rendered"
            ledger.refuse("option-unsupported", f"--{option}", text, way_out="use --gres, and "
                          "--container-image with its other flags")  # fmt: skip
    if container.import_timeout:
        text = "the kubelet pulls the image, for as long as it takes"
        ledger.ignore("import-timeout", "--container-import-timeout", text)
    if container.unshare:
        text = "pods have network, IPC and UTS namespaces of their own"
        ledger.render("--container-unshare", text)
    if container.env:
        text = "these variables of the job win over those of the image"
        ledger.render("--container-env", text)
    if container.entrypoint_log:
        text = "what the entrypoint prints is in kubectl logs"
        ledger.render("--container-entrypoint-log", text)


def pod_template(context: Context, element: Element, devices: Devices) -> Manifest:
    """Return the template of one job's pods, without what only one target has."""
    metadata: Manifest = {"labels": {**context.labels, "pyxis/element": element.name}}
    if uses_fabric(context) and context.profile.fabric.annotations:
        metadata["annotations"] = dict(context.profile.fabric.annotations)
    return {"metadata": metadata, "spec": _spec(context, element, devices)}


def _spec(context: Context, element: Element, devices: Devices) -> Manifest:
    image, secret = pod_image(context)
    volumes, mounts = pod_volumes(context)
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": context.grace,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }
    if not context.array_of_pods:
        domain = f"{element.name}.{context.namespace}.svc.{context.profile.dns_domain}"
        spec["dnsConfig"] = {"searches": [domain]}
    container = _container(context, element, devices, image)
    container["volumeMounts"] = mounts
    if _host_network(context):
        spec.update({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"})
        volumes.append({"name": "infiniband", "hostPath": {"path": "/dev/infiniband", "type": ""}})
        mounts.append({"name": "infiniband", "mountPath": "/dev/infiniband"})
        text = "pods are on the nodes' network: agents use the nodes' addresses"
        context.ledger.approximate("host-network", "", text)
    spec.update(_identity(context))
    if context.qos.priority_class and context.options.target != "volcano":
        spec["priorityClassName"] = context.qos.priority_class
    if secret:
        spec["imagePullSecrets"] = [{"name": secret}]
    rows: list[tuple[str, Any]] = [
        ("nodeSelector", node_selector(context, devices.node_labels)),
        ("affinity", affinity(context, element)),
        ("tolerations", tolerations(context)),
        ("resourceClaims", _claims(devices, element)),
    ]
    spec.update({name: value for name, value in rows if value})
    spec["containers"] = [container]
    spec["volumes"] = volumes
    add_python(context, spec)
    return spec


def _host_network(context: Context) -> bool:
    return uses_fabric(context) and context.profile.fabric.kind == "host"


def _claims(devices: Devices, element: Element) -> list[Manifest]:
    return [
        {"name": name, "resourceClaimTemplateName": template or channel_name(element)}
        for name, template in devices.claims.items()
    ]


def _identity(context: Context) -> Manifest:
    """The submitting user, as under Slurm; root only where that is asked for."""
    job, submitter, security = context.job, context.options.submitter, context.profile.security
    uid = submitter.uid if job.uid is None else job.uid
    gid = submitter.gid if job.gid is None else job.gid
    if job.uid is not None or job.gid is not None:
        context.ledger.render("--uid" if job.uid is not None else "--gid", f"runs as {uid}:{gid}")
    found: Manifest = {}
    if job.container.remap_root:
        uid = gid = 0
        if security.user_namespaces:
            found["hostUsers"] = False
        text = "root of the pod" + (" in a user namespace" if security.user_namespaces else "")
        context.ledger.approximate("remap-root", "--container-remap-root", text)
    context_of_pod: Manifest = {"runAsUser": uid, "runAsGroup": gid}
    if uid == 0 and not security.allow_root:
        option = "--container-remap-root" if job.container.remap_root else ""
        context.ledger.refuse("security-root", option, "pods of this site do not run as root")
    if submitter.groups and uid:
        context_of_pod["supplementalGroups"] = list(submitter.groups)
    if uid:
        context_of_pod["runAsNonRoot"] = True
    context_of_pod["seccompProfile"] = {"type": security.seccomp}
    return {**found, "securityContext": context_of_pod}


def _container(context: Context, element: Element, devices: Devices, image: str) -> Manifest:
    job = context.job
    container: Manifest = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}
    directory = job.container.workdir or ("" if context.starts_outside else job.chdir)
    if directory:
        container["workingDir"] = directory if directory[0] == "/" else f"/{directory}"
        option = "--container-workdir" if job.container.workdir else "--chdir"
        context.ledger.render(option, f"the body starts in {container['workingDir']}")
    if job.container.workdir and job.chdir:
        text = "where relative paths of output files begin"
        context.ledger.render("--chdir", text)
    command = [*interpreter(context), *COMMAND]
    if job.container.entrypoint:
        container["args"] = command
        context.ledger.render("--container-entrypoint", "the image's entrypoint runs the launcher")
    else:
        container["command"] = command
    container["env"] = pod_environment(context, element)
    container["ports"] = [{"name": "stepd", "containerPort": CONTROL_PORT}]
    container["resources"] = _resources(context, devices)
    container["securityContext"] = _container_security(context)
    return container


def _resources(context: Context, devices: Devices) -> Manifest:
    layout = context.layout
    requests = {"cpu": str(layout.cpus)}
    limits = {"cpu": str(layout.cpus)} if context.partition.guaranteed else {}
    if layout.memory:
        requests["memory"] = limits["memory"] = mebibytes(layout.memory)
    if context.job.tmp:
        requests["ephemeral-storage"] = mebibytes(context.job.tmp)
    requests.update(devices.resources)
    limits.update(devices.resources)
    context.ledger.render("--cpus-per-task", f"{layout.cpus} CPUs requested for each pod")
    resources: Manifest = {"requests": requests}
    if limits:
        resources["limits"] = limits
    if devices.claims:
        resources["claims"] = [{"name": name} for name in devices.claims]
    return resources


def _container_security(context: Context) -> Manifest:
    if _host_network(context) and context.profile.fabric.privileged:
        return {"privileged": True}
    security: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if uses_fabric(context):
        # There is no memlock limit in a pod spec: RDMA registers memory with this alone.
        security["capabilities"]["add"] = ["IPC_LOCK"]
    if context.job.container.writable is not None:
        read_only = not context.job.container.writable
        option = "--container-readonly" if read_only else "--container-writable"
        security["readOnlyRootFilesystem"] = read_only
        context.ledger.render(option, "the root filesystem of the container")
    return security
