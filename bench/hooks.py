"""A start with many mounts, environment files and foreign hooks, beside those hooks run alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

from measure import Report, interleave, milliseconds, own_command
from starts import make_rootfs
from workplace import Workplace

RUNS = 20
HOOKS, MOUNTS, ENVIRON_FILES = 10, 40, 20

# What hooks written for enroot do, its own among them: functions of common.sh, the user looked
# up, the container's variables looked up by grep, folders made, answers appended.
HOOK = """\
#!/usr/bin/env bash
set -euo pipefail
shopt -s lastpipe
source "${ENROOT_LIBRARY_PATH}/common.sh"
common::checkcmd grep awk getent
user=$(common::getpwent | cut -d ':' -f 1)
tac "${ENROOT_ENVIRON}" | grep "^SITE_" | while IFS='=' read -r key value; do
    [ -v "${key}" ] || export "${key}=${value}"
done || :
for name in NCCL_DEBUG UCX_TLS OMP_PLACES MKL_THREADING; do
    if ! grep -q "^${name}=" "${ENROOT_ENVIRON}"; then
        printf "%s=%s\\n" "${name}" "value" >> "${ENROOT_ENVIRON}"
    fi
done
source_folder=$(common::realpath "${HOME}")
awk '$2 == "/proc" { found = 1 } END { exit !found }' /proc/mounts
mkdir -p "${ENROOT_ROOTFS}/site/${user}"
entry="${source_folder} /site/${user}/NUMBER none x-create=dir,bind,ro"
printf "%s\\n" "${entry}" >> "${ENROOT_MOUNTS}"
"""


def run(report: Report, folder: Path, *, full: bool) -> None:
    report.heading(
        f"Hooks: a start with {MOUNTS} mounts, {ENVIRON_FILES} environment files and {HOOKS} hooks"
    )
    place = Workplace(folder / "hooks")
    place.clear(place.data)
    make_rootfs(place.data / "bench")
    config = place.folder / "user-config"
    environ = {**place.environ, "ENROOT_CONFIG_PATH": str(config)}
    environ["ENROOT_SYSCONF_PATH"] = str(place.folder / "no-sysconf")
    prepare(config, place.folder)
    enroot = own_command("enroot")
    alone = {
        **environ,
        "ENROOT_LIBRARY_PATH": library_path(enroot, environ),
        "ENROOT_ENVIRON": str(place.folder / "environ"),
        "ENROOT_MOUNTS": str(place.folder / "fstab"),
        "ENROOT_ROOTFS": str(place.data / "bench"),
    }
    script = place.folder / "alone.sh"
    script.write_text(
        f'#!/bin/bash\n: > "$ENROOT_MOUNTS"\ncat {config}/environ.d/*.env > "$ENROOT_ENVIRON"\n'
        f'for hook in {config}/hooks.d/*.sh; do "$hook" > /dev/null || exit; done\n'
    )
    script.chmod(0o755)
    timings = interleave(
        {
            "those hooks alone": ["env", *(f"{k}={v}" for k, v in alone.items()), str(script)],
            "enroot start NAME true": [enroot, "start", "bench", "true"],
        },
        runs=RUNS,
        environ=environ,
    )
    for name, timing in timings.items():
        report.line(name, milliseconds(timing))
    whole = timings["enroot start NAME true"].median
    report.ratio("start beside its hooks", whole / timings["those hooks alone"].median, 1.2)


def prepare(config: Path, folder: Path) -> None:
    """Write the user's hooks.d, mounts.d and environ.d."""
    for name in ("hooks.d", "mounts.d", "environ.d"):
        (config / name).mkdir(parents=True, exist_ok=True)
    for number in range(HOOKS):
        path = config / f"hooks.d/{number + 50}-site.sh"
        path.write_text(HOOK.replace("NUMBER", str(number)))
        path.chmod(0o755)
    for number in range(ENVIRON_FILES):
        text = "".join(f"SITE_{number}_{index}=${{HOME}}/{index}\n" for index in range(5))
        (config / f"environ.d/{number:02}-site.env").write_text(text)
    entries = [
        f"{folder} /data/{number} none x-create=dir,bind,ro,nosuid,nodev\n"
        for number in range(MOUNTS)
    ]
    (config / "mounts.d/50-site.fstab").write_text("".join(entries))


def library_path(enroot: str, environ: dict[str, str]) -> str:
    """Return the folder of common.sh, as `enroot info` prints it."""
    done = subprocess.run([enroot, "info"], env=environ, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "ENROOT_LIBRARY_PATH":
            return value
    raise RuntimeError("enroot info does not print ENROOT_LIBRARY_PATH")
