"""The objects beside a job: its ConfigMap with script and specification, its Secret, its Service.

job.json is the launcher's input; its `version` changes whenever a field changes its meaning.

Pure.
"""

from __future__ import annotations

import base64
import json
import posixpath
from typing import Any

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.environment import Exports, name_pattern
from pyxis_py.kubernetes.pod.template import CONTROL_PORT
from pyxis_py.kubernetes.spec.slurm_lists import format_counts

JOB_FILE_VERSION = 1
LARGEST_CONFIG_MAP = 1 << 20
"""Bytes of a ConfigMap's data, keys and values together."""


def config_map(context: Context, exports: Exports) -> Manifest:
    """Return the ConfigMap: job.sh byte for byte, job.json, and the launcher where it is given."""
    data = {"job.sh": context.job.script, "job.json": job_file(context, exports)}
    found: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(context, context.name),
        "immutable": True,
        "data": data,
    }
    size = sum(len(key) + len(value.encode("utf-8")) for key, value in data.items())
    if context.options.launcher is not None:
        encoded = base64.b64encode(context.options.launcher).decode("ascii")
        found["binaryData"] = {"launcher.pyz": encoded}
        size += len(encoded)
    else:
        text = f"pods need the ConfigMap {context.profile.launcher_config_map} with launcher.pyz"
        context.ledger.warn("launcher-config-map", "", text)
    if size > LARGEST_CONFIG_MAP:
        text = f"script and launcher have {size} bytes"
        context.ledger.refuse("configmap-too-large", "", text)
    return found


def metadata(context: Context, name: str) -> Manifest:
    """Return the metadata of an object that belongs to the job."""
    return {"name": name, "namespace": context.namespace, "labels": context.labels}


def secret(context: Context, exports: Exports) -> Manifest:
    """Return the Secret: the job's token, and exported variables that look like secrets."""
    data = {"token": context.options.token}
    data.update({f"env.{name}": value for name, value in exports.secret})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(context, context.name),
        "immutable": True,
        "type": "Opaque",
        "stringData": data,
    }


def service(context: Context, element: Element) -> Manifest:
    """Return the headless Service that gives the pods of a plain Job their names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, element.name),
        "spec": {
            "clusterIP": "None",
            # Agents look each other up before any pod is ready.
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": element.name},
            "ports": [{"name": "stepd", "port": CONTROL_PORT}],
        },
    }


def job_file(context: Context, exports: Exports) -> str:
    """Return job.json: what the launcher has to know beyond its variables."""
    job, layout = context.job, context.layout
    base = context.directory
    options = dict(job.launcher)
    for option in {"error", "input"} & options.keys():
        options[option] = posixpath.join(base, options[option])
    name = f"{context.name}-a{{task}}" if _elements_are_jobs(context) else context.name
    content: dict[str, Any] = {
        "version": JOB_FILE_VERSION,
        "jobId": context.options.job_id,
        "jobName": job.name,
        "arguments": list(job.arguments),
        "nodes": layout.nodes,
        "tasksPerNode": format_counts(layout.tasks),
        "cpusPerTask": job.cpus_per_task,
        "cpusPerNode": layout.cpus,
        "gpusPerNode": layout.gpus,
        "gpusPerTask": sum(gres.count for gres in job.gpus_per_task),
        "memPerNodeMiB": layout.memory,
        "timeLimitSeconds": context.time_limit,
        "graceSeconds": context.grace,
        "requeue": job.requeue,
        "hostPattern": name_pattern(context, name),
        "batchHostIndex": 0,
        "controlPort": CONTROL_PORT,
        "output": posixpath.join(base, job.output or _default_output(context)),
        "ignoreMpi": context.ledger.allows("mpi-server"),
        "umask": context.options.submitter.umask,
        "containerImage": job.container.image,
        "containerOfSteps": bool(job.container.image) and not job.image_line,
        "containerMounts": [
            posixpath.normpath(posixpath.join("/", entry.target)) for entry in job.container.mounts
        ],
        "containerEnv": list(job.container.env),
        "exportEnv": dict(exports.plain),
        "secretEnv": [name for name, _ in exports.secret],
        "options": options,
    }
    if context.starts_outside:
        content["directory"] = base
    if job.signal:
        content["signal"] = {
            "name": job.signal.name,
            "seconds": job.signal.seconds,
            "batchOnly": job.signal.batch_only,
        }
    if job.array:
        content["arrayIndices"] = list(job.array.indices)
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _elements_are_jobs(context: Context) -> bool:
    return context.job.array is not None and not context.array_of_pods


def _default_output(context: Context) -> str:
    return "slurm-%A_%a.out" if context.job.array else "slurm-%j.out"
