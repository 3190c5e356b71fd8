"""`--bring-python`: a Python for images that have none, copied into the pod by an init container.

The launcher copies the Python of the profile's image, with its libraries and its loader, into a
volume; the pod's container starts it through that loader, whatever C library the image has.

Pure. Source: pyxis_py/kubernetes/launcher/node/bundle.py; Kubernetes API, Container.
"""

from __future__ import annotations

from pyxis_py.kubernetes.pod.context import Context, Manifest
from pyxis_py.kubernetes.pod.volumes import LAUNCHER_PATH

PYTHON_PATH = "/run/pyxis-python"
VOLUME = "python"
INTERPRETER = (
    f"{PYTHON_PATH}/ld.so", "--library-path", f"{PYTHON_PATH}/lib", f"{PYTHON_PATH}/bin/python3",
)  # fmt: skip

_MEMORY = "256Mi"


def interpreter(context: Context) -> list[str]:
    """Return the words that start Python in the pod's container."""
    return list(INTERPRETER) if context.options.bring_python else ["python3"]


def add_python(context: Context, spec: Manifest) -> None:
    """Add the init container, its volume and the mount, where they are asked for."""
    if not context.options.bring_python:
        return
    image = context.profile.python_image
    if not image:
        context.ledger.refuse("python-image", "--bring-python", "no image to take Python from")
        return
    context.ledger.render("--bring-python", f"Python of {image}, copied by an init container")
    spec["volumes"].append({"name": VOLUME, "emptyDir": {}})
    main = spec["containers"][0]
    main["volumeMounts"].append({"name": VOLUME, "mountPath": PYTHON_PATH, "readOnly": True})
    resources: Manifest = {
        "requests": {"cpu": "1", "memory": _MEMORY}, "limits": {"memory": _MEMORY},
    }  # fmt: skip
    if context.partition.guaranteed:
        resources["limits"]["cpu"] = "1"
    spec["initContainers"] = [
        {
            "name": "python",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", f"{LAUNCHER_PATH}/launcher.pyz", "python", PYTHON_PATH],
            "resources": resources,
            "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                {"name": "launcher", "mountPath": LAUNCHER_PATH, "readOnly": True},
                {"name": VOLUME, "mountPath": PYTHON_PATH},
            ],
        }
    ]  # fmt: skip
