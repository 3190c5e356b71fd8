"""Examine the files that settings name: folders, free space, permissions, credentials, hooks.

Nothing is created: for a folder that does not exist, its nearest parent decides.
"""

from __future__ import annotations

import os
import re
import stat
from difflib import get_close_matches

from enroot_py.errors import EnrootError
from enroot_py.operations.doctor.findings import Finding, fault, note, ok
from enroot_py.operations.info import describe_path, setting_paths
from enroot_py.plan.fstab import parse_fstab
from enroot_py.settings import Settings, config_files, format_size, package_share_path
from enroot_py.store.file_system import NETWORK_KINDS, FileSystem

_LOW = 2**30  # bytes; less free space than any image worth running needs

_OF_HOOKS = {"ENROOT_ENVIRON", "ENROOT_MOUNTS", "ENROOT_PID", "ENROOT_ROOTFS", "ENROOT_WORKDIR"}
"""What hooks are given: no settings."""
_HOLDS = {
    "ENROOT_DATA_PATH": "containers",
    "ENROOT_CACHE_PATH": "layers and images",
    "ENROOT_TEMP_PATH": "unfinished work",
    "ENROOT_RUNTIME_PATH": "running containers",
}


def examine_configuration(settings: Settings) -> Finding:
    """Return the finding about enroot.conf and its drop-ins, which have been read by now."""
    read = [path for path in config_files(settings) if os.path.isfile(path)]
    writable = [path for path in read if _is_open_to_others(path)]
    if writable:
        return fault(
            "configuration",
            f"{writable[0]} can be changed by other users",
            *(f"sudo chmod go-w {path}" for path in writable),
        )
    return ok("configuration", ", ".join(read) or f"{settings.config_file} (none: all defaults)")


def examine_folders(settings: Settings) -> list[Finding]:
    """Return one finding for each ENROOT_*_PATH that is written to."""
    paths = dict(setting_paths(settings))
    return [_folder(variable, paths[variable]) for variable in _HOLDS]


def examine_hooks(settings: Settings) -> list[Finding]:
    """Return the faults of hook folders: what anybody could change would run as this user."""
    findings = []
    for folder in (settings.sysconf_path, settings.config_path):
        for name in ("hooks.d", "mounts.d", "environ.d"):
            path = os.path.join(folder, name)
            for found in [path, *_entries(path)]:
                if _is_open_to_others(found):
                    text = f"{found} can be changed by other users"
                    findings.append(fault(name, text, f"chmod go-w {found}"))
    return findings


def examine_names(settings: Settings) -> list[Finding]:
    """Return a note for each variable that looks like a misspelt setting, which nothing reads.

    Sites have ENROOT_ variables of their own, for their hooks: unlike names are left alone.
    """
    with open(os.path.join(package_share_path(), "enroot.conf"), encoding="utf-8") as file:
        known = set(re.findall(r"ENROOT_[A-Z_]+[A-Z]", file.read()))
    findings = []
    for name in sorted(set(settings.environment) - known - _OF_HOOKS):
        meant = get_close_matches(name, known, n=1, cutoff=0.85)
        if name.startswith("ENROOT_") and meant:
            findings.append(note("settings", f"{name} is unknown", f"# did you mean {meant[0]}?"))
    return findings


def examine_mounts(settings: Settings) -> list[Finding]:
    """Return a fault if the system's own fstab files leave out what containers cannot do without.

    Where the system has such a folder, nothing is mounted but what it says.
    """
    folder = os.path.join(settings.sysconf_path, "mounts.d")
    if not os.path.isdir(folder):
        return []
    targets = set()
    for path in _entries(folder):
        if not path.endswith(".fstab") or not os.path.isfile(path):
            continue
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                mounts = parse_fstab(file.read(), {}, path)
                targets |= {"/" + mount.target.strip("/") for mount in mounts}
        except (OSError, EnrootError) as error:
            return [fault("mounts.d", str(error), f"cat {path}")]
    missing = [target for target in ("/dev", "/proc", "/sys") if target not in targets]
    if not missing:
        return []
    return [
        fault(
            "mounts.d",
            f"{folder} takes the place of the standard mounts, and has no {', '.join(missing)}",
            f"sudo cp -n {package_share_path()}/mounts.d/*.fstab {folder}/",
        )
    ]


def examine_credentials(settings: Settings) -> Finding:
    """Return the finding about the registry credentials file."""
    path = settings.credentials_file
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ok("credentials", f"{path} (none: registries are asked without a login)")
    except OSError as error:
        return fault("credentials", f"{path}: {error.strerror}", f"ls -ld {path}")
    if not stat.S_ISREG(status.st_mode):
        return fault("credentials", f"{path} is not an ordinary file", f"rm {path}")
    if status.st_uid not in (0, os.geteuid()):
        remedy = f"sudo chown {os.geteuid()} {path}"
        return fault("credentials", f"{path} belongs to user {status.st_uid}", remedy)
    if stat.S_IMODE(status.st_mode) & 0o026:
        what = "changed" if stat.S_IMODE(status.st_mode) & 0o022 else "read"
        text = f"{path} can be {what} by other users"
        return fault("credentials", text, f"chmod 600 {path}")
    if not os.access(path, os.R_OK):
        return fault("credentials", f"{path} cannot be read", f"chmod 600 {path}")
    return ok("credentials", path)


def _folder(variable: str, path: str) -> Finding:
    facts = describe_path(variable, path)
    if facts.file_system is None:
        return fault(variable, f"{path} cannot be looked at", f"ls -ld {path}")
    refusal = _refusal(variable, path)
    if refusal:
        return refusal
    free = facts.file_system.free
    text = f"{path} on {facts.file_system.kind}, {format_size(free)} free"
    if variable == "ENROOT_DATA_PATH" and "noexec" in facts.file_system.options:
        point = facts.file_system.mount_point
        return fault(
            variable,
            f"{path} is on {point}, mounted noexec: no program of a container can run",
            f"sudo mount -o remount,exec {point}",
            _elsewhere(variable),
        )
    if (facts.file_system.size and free < _LOW) or 0 <= facts.file_system.free_inodes < 1000:
        remedy = ("enroot cache prune",) if variable == "ENROOT_CACHE_PATH" else ()
        return note(
            variable, f"{text}: too little for {_HOLDS[variable]}", *remedy, _elsewhere(variable)
        )
    if variable != "ENROOT_CACHE_PATH" and _is_network(facts.file_system):
        return note(variable, f"{text}: a local disk is faster", _elsewhere(variable))
    return ok(variable, text if facts.exists else f"{text} (made when needed)")


def _refusal(variable: str, path: str) -> Finding | None:
    """Why a folder cannot be used, by its permissions or those of its nearest parent."""
    nearest = path
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest):
        return fault(variable, f"{nearest} is not a folder", _elsewhere(variable))
    if not os.access(nearest, os.W_OK | os.X_OK):
        what = "cannot be written to" if nearest == path else f"cannot be made in {nearest}"
        remedy = f"sudo install -d -m 700 -o {os.geteuid()} -g {os.getegid()} {path}"
        return fault(variable, f"{path} {what}", remedy, _elsewhere(variable))
    status = os.stat(path) if nearest == path else None
    # A cache may be shared, temporary folders always are.
    if status and variable not in ("ENROOT_TEMP_PATH", "ENROOT_CACHE_PATH"):
        if status.st_uid != os.geteuid():
            text = f"{path} belongs to user {status.st_uid}"
            return fault(variable, text, f"sudo chown {os.geteuid()} {path}", _elsewhere(variable))
        if stat.S_IMODE(status.st_mode) & 0o022:
            text = f"{path} can be changed by other users"
            return fault(variable, text, f"chmod go-w {path}")
    return None


def _elsewhere(variable: str) -> str:
    return f"# or elsewhere: export {variable}=FOLDER"


def _is_network(file_system: FileSystem) -> bool:
    return file_system.kind in NETWORK_KINDS


def _is_open_to_others(path: str) -> bool:
    try:
        return bool(stat.S_IMODE(os.stat(path).st_mode) & 0o002)
    except OSError:
        return False


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    except OSError:
        return []
