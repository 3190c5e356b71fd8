"""Volumes of a pod: `--container-mounts`, home, output files, shared memory, the launcher.

A path is looked up by its longest prefix in the profile; paths of one filesystem share a volume and
differ by `subPath`. What the kubelet provides itself is dropped with a note.

Pure. Source: pyxis 0.24 args.c for the entries; Kubernetes API, Volume and VolumeMount.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from pyxis_py.args import MountEntry
from pyxis_py.kubernetes.pod.context import Context, Manifest
from pyxis_py.kubernetes.profile.site import MountRule

LAUNCHER_PATH = "/run/pyxis"
TOKEN_PATH = "/run/pyxis-token"
LARGEST_SHM = 512 * 1024
"""MiB of /dev/shm, unless a quarter of the memory is less."""

_KUBELETS = ("/dev/shm", "/proc", "/sys", "/dev", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname")
_SLURMS = ("/etc/slurm", "/run/munge", "/var/run/munge", "/var/spool/slurmd")
_RESERVED = (LAUNCHER_PATH, TOKEN_PATH, "/run/pyxis-python")
_MOUNTS = "--container-mounts"
_HARMLESS = frozenset(
    ("rw", "bind", "rbind", "private", "rprivate", "slave", "nodev", "nosuid", "relatime",
     "x-detach", "nofail", "silent")
)  # fmt: skip


@dataclass(slots=True)
class VolumeSet:
    """Volumes and mounts as they come together; a target that is given again replaces the first."""

    volumes: dict[str, Manifest] = field(default_factory=dict)
    mounts: dict[str, Manifest] = field(default_factory=dict)

    def add(self, name: str, source: Manifest, mount: Manifest) -> bool:
        """Add a mount and its volume; return whether the target was taken before."""
        self.volumes.setdefault(name, {"name": name, **source})
        target = mount["mountPath"]
        taken = self.mounts.pop(target, None) is not None
        self.mounts[target] = {"name": name, **mount}
        return taken

    def covers(self, path: str) -> bool:
        """Whether something is mounted at a path or above it."""
        return any(path == target or path.startswith(target.rstrip("/") + "/")
                   for target in self.mounts)  # fmt: skip

    def used(self) -> list[Manifest]:
        """The volumes that mounts use, in the order in which they came."""
        names = {mount["name"] for mount in self.mounts.values()}
        return [volume for name, volume in self.volumes.items() if name in names]


def pod_volumes(context: Context) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes and volume mounts of the job's pods."""
    found = VolumeSet()
    _add_launcher(context, found)
    _add_memory(context, found)
    for entry in context.job.container.mounts:
        _add_entry(context, found, entry)
    _add_home(context, found)
    _add_output(context, found)
    return found.used(), list(found.mounts.values())


def _add_launcher(context: Context, found: VolumeSet) -> None:
    if context.options.launcher is not None:
        source: Manifest = {"configMap": {"name": context.name, "defaultMode": 0o555}}
    else:
        names = (context.name, context.profile.launcher_config_map)
        sources = [{"configMap": {"name": name}} for name in names]
        source = {"projected": {"sources": sources, "defaultMode": 0o555}}
    found.add("launcher", source, {"mountPath": LAUNCHER_PATH, "readOnly": True})
    secret = {"secret": {"secretName": context.name, "defaultMode": 0o444}}
    found.add("token", secret, {"mountPath": TOKEN_PATH, "readOnly": True})


def _add_memory(context: Context, found: VolumeSet) -> None:
    memory: Manifest = {"medium": "Memory"}
    if context.layout.memory:
        size = max(1, min(context.layout.memory // 4, LARGEST_SHM))
        memory["sizeLimit"] = mebibytes(size)
        context.ledger.warn(
            "shm-counts-as-memory", "", f"/dev/shm of {size} MiB counts as memory of the pod"
        )
    found.add("shm", {"emptyDir": memory}, {"mountPath": "/dev/shm"})
    if context.job.tmp:
        size_limit = {"sizeLimit": mebibytes(context.job.tmp)}
        found.add("tmp", {"emptyDir": size_limit}, {"mountPath": "/tmp"})
        context.ledger.render("--tmp", "a volume at /tmp and as much ephemeral storage")
    elif context.job.container.writable is False:
        found.add("tmp", {"emptyDir": {}}, {"mountPath": "/tmp"})


def mebibytes(size: int) -> str:
    """Return an amount of MiB as a quantity, in Gi where that is exact."""
    return f"{size // 1024}Gi" if size and size % 1024 == 0 else f"{size}Mi"


def _add_entry(context: Context, found: VolumeSet, entry: MountEntry) -> None:
    option, ledger = "--container-mounts", context.ledger
    directory = context.directory
    target = posixpath.normpath(posixpath.join("/", entry.target))
    if entry.source == "umount":
        ledger.refuse("mount-umount", option, f"{target} is not mounted in a pod")
        return
    mount = _mount_flags(context, entry, target)
    if entry.source == "tmpfs":
        name = f"tmpfs-{sum(volume.startswith('tmpfs-') for volume in found.volumes)}"
        found.add(name, {"emptyDir": {"medium": "Memory"}}, mount)
        ledger.render(option, f"a volume in memory at {target}")
        return
    source = posixpath.normpath(posixpath.join(directory, entry.source))
    for path in (source, target):
        if _below(path, (*_KUBELETS, *_SLURMS, *_RESERVED)) or path == "/":
            ledger.ignore("mount", option, f"{source}:{target}: the kubelet's own, or Slurm's")
            return
    if not _add_path(context, found, source, mount):
        ledger.refuse("mount-unmapped", option, f"{source} is below no path of the profile",
                      way_out=_way_out(source))  # fmt: skip


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _way_out(path: str) -> str:
    top = "/" + path.split("/")[1]
    return f"add to `mounts` of the site profile: {{path: {top}, name: NAME, pvc: CLAIM}}"


def _mount_flags(context: Context, entry: MountEntry, target: str) -> Manifest:
    option, ledger = "--container-mounts", context.ledger
    mount: Manifest = {"mountPath": target}
    for flag in entry.options:
        if flag == "ro":
            mount["readOnly"] = True
        elif flag == "rw":
            mount.pop("readOnly", None)
        elif flag == "rslave":
            mount["mountPropagation"] = "HostToContainer"
        elif flag in ("shared", "rshared"):
            text = f"{target}: mounts of a pod do not spread to the node"
            ledger.refuse("mount-shared-propagation", option, text)
        elif not flag.startswith("x-create=") and flag not in _HARMLESS:
            ledger.ignore("mount-option", option, f"{target}: pods have no mount option {flag}")
    return mount


def _add_path(
    context: Context, found: VolumeSet, source: str, mount: Manifest, option: str = _MOUNTS
) -> bool:
    """Add the volume for a path of the Slurm nodes; False if the profile has none."""
    rule = find_rule(context.profile.mounts, source)
    if rule is not None:
        inside = posixpath.relpath(source, rule.path)
        if inside != ".":
            mount["subPath"] = inside
        if rule.submounts and mount.get("readOnly") and "mountPropagation" not in mount:
            mount["recursiveReadOnly"] = "IfPossible"
        name, volume = rule.name, dict(rule.source)
    elif _below(source, context.profile.security.host_paths):
        name = f"host-{sum(volume.startswith('host-') for volume in found.volumes)}"
        volume = {"hostPath": {"path": source, "type": ""}}
    else:
        return False
    if "hostPath" in volume:
        _check_host_path(context, source)
    if found.add(name, volume, mount):
        text = f"{mount['mountPath']} is mounted twice: the last one counts"
        context.ledger.warn("mount-twice", option, text)
    context.ledger.render(option, f"{source} at {mount['mountPath']}")
    return True


def _check_host_path(context: Context, source: str) -> None:
    if not _below(source, context.profile.security.host_paths):
        text = f"{source} is a path of the node, which security.hostPaths does not have"
        context.ledger.refuse("security-host", "--container-mounts", text)
    else:
        text = f"{source} is a path of the node: namespaces with pod security refuse it"
        context.ledger.warn("host-path", "--container-mounts", text)


def find_rule(rules: tuple[MountRule, ...], path: str) -> MountRule | None:
    """Return the rule with the longest path at or above `path`."""
    found = [rule for rule in rules if rule.path == "/" or _below(path, (rule.path,))]
    return max(found, key=lambda rule: len(rule.path), default=None)


def _add_home(context: Context, found: VolumeSet) -> None:
    home = posixpath.normpath(context.options.submitter.home)
    if context.job.container.mount_home and not found.covers(home) and home != "/":
        option = "--container-mount-home"
        if not _add_path(context, found, home, {"mountPath": home}, option):
            text = f"{home} is below no path of the profile"
            context.ledger.refuse("mount-unmapped", option, text, way_out=_way_out(home))


def _add_output(context: Context, found: VolumeSet) -> None:
    """Mount the directories of the script's files where they are; the launcher opens them."""
    options = dict(context.job.launcher)
    output = context.job.output or "slurm-%j.out"
    _add_file(context, found, "--output", output)
    for name in ("error", "input"):
        _add_file(context, found, f"--{name}", options.get(name, ""))
    if context.starts_outside:
        _add_directory(context, found)


def _add_file(context: Context, found: VolumeSet, option: str, name: str) -> None:
    if not name:
        return
    path = posixpath.normpath(posixpath.join(context.directory, name))
    does = "reads" if option == "--input" else "writes"
    if path == "/dev/null":
        context.ledger.render(option, f"the launcher {does} no file")
        return
    directory = posixpath.dirname(path).partition("%")[0] or "/"
    if "%" in posixpath.dirname(path):
        directory = posixpath.dirname(directory)
    if _add_in_place(context, found, directory, option):
        context.ledger.render(option, f"the launcher {does} {path}")
    else:
        text = f"{directory} is not mounted: the output is in kubectl logs alone"
        code = "output-unmounted"
        if option == "--input":
            text, code = f"{directory} is not mounted: the job will fail", "input-unmounted"
        context.ledger.warn(code, option, text,
                            way_out="add the path to `mounts` of the site profile")  # fmt: skip


def _add_in_place(context: Context, found: VolumeSet, directory: str, option: str) -> bool:
    """Mount a directory where it is, unless it is there; False if the profile has none for it."""
    return found.covers(directory) or (
        find_rule(context.profile.mounts, directory) is not None
        and _add_path(context, found, directory, {"mountPath": directory}, option)
    )


def _add_directory(context: Context, found: VolumeSet) -> None:
    """Mount the directory of a script that runs beside its steps' containers."""
    directory = posixpath.normpath(context.directory)
    if directory != "/" and _add_in_place(context, found, directory, "--chdir"):
        context.ledger.render("--chdir", f"the body starts in {directory}")
    else:
        text = f"{directory} is not mounted: the body starts in the image's directory"
        context.ledger.warn("directory-unmounted", "--chdir", text,
                            way_out="add the path to `mounts` of the site profile")  # fmt: skip
