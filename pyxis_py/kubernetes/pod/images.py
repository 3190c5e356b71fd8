"""`--container-image` to the image of a pod, and its pull secret.

Pure. Source: pyxis 0.24 pyxis_slurmstepd.c, enroot 4.1.2 src/docker.sh: docker::_parse_uri().
"""

from __future__ import annotations

import re

from pyxis_py.kubernetes.pod.context import Context
from pyxis_py.kubernetes.profile.site import Registry

_REFERENCE = re.compile(
    r"(?:(?P<user>[^@/#:\s]+)@(?!sha256:))?(?:(?P<registry>[A-Za-z0-9.-]+(?::\d+)?)#)?"
    r"(?P<repository>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?\Z",
    re.ASCII,
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)


def pod_image(context: Context) -> tuple[str, str]:
    """Return the image's reference for the kubelet, and the name of its pull secret or ""."""
    text, ledger = context.job.container.image.replace("\\#", "#"), context.ledger
    option = "--container-image"
    if not text:
        ledger.refuse("image-none", option, "a pod needs an image; Slurm would run on the node")
        return "", ""
    scheme = _SCHEME.match(text)
    if scheme and scheme[1] in ("dockerd", "podman"):
        ledger.refuse("image-daemon", option, f"{scheme[1]}:// is a daemon of one node")
        return "", ""
    if scheme and scheme[1] != "docker":
        ledger.refuse("image-scheme", option, f"the kubelet cannot pull from {scheme[1]}://")
        return "", ""
    name = text.removeprefix("docker://")
    if name[0:1] in ("/", ".") or name.endswith((".sqsh", ".squashfs")):
        ledger.refuse("image-squashfs", option, f"the kubelet cannot run a squashfs file: {text}")
        return "", ""
    match = _REFERENCE.match(name)
    if match is None:
        ledger.refuse("image-scheme", option, f"not an image reference: {text!r}")
        return "", ""
    return _reference(context, match)


def _reference(context: Context, match: re.Match[str]) -> tuple[str, str]:
    ledger, option = context.ledger, "--container-image"
    host = (match["registry"] or context.profile.default_registry).lower()
    repository = match["repository"]
    if not match["registry"] and "." in repository.partition("/")[0] and "/" in repository:
        text = f"{repository} is looked for on {host}: a registry's name ends with #"
        named, _, path = context.job.container.image.removeprefix("docker://").partition("/")
        way_out = f"{named}#{path}, if {named} is one"
        ledger.warn("image-registry-separator", option, text, way_out=way_out)
    if host == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    registry = context.profile.registries.get(host, Registry())
    reference = f"{registry.rewrite or host}/{repository}"
    pinned = match["digest"] or context.job.container.digest.removeprefix("print")
    if match["tag"] or not pinned:
        reference += f":{match['tag'] or 'latest'}"
    if pinned:
        reference += f"@{pinned}"
    elif match["tag"] in (None, "latest"):
        text = "another image may be meant tomorrow: nodes and requeued runs may differ"
        ledger.warn("image-latest-tag", option, text, way_out="name a tag or a digest")
    user = match["user"] or ""
    secret = registry.users.get(user, "") if user else registry.pull_secret
    if user and not secret:
        text = f"no pull secret for {user}@{host} in the profile; the service account's are used"
        ledger.approximate("image-user", option, text)
        secret = registry.pull_secret
    if context.job.image_line:
        text = f"image {reference}, of srun in line {context.job.image_line}; the body runs in it"
        ledger.approximate("srun-image", option, text)
    else:
        ledger.render(option, f"image {reference}")
    return reference, secret
