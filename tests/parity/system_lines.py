"""Command lines under a site's own configuration folder, and in a network namespace."""

from __future__ import annotations

from collections.abc import Mapping

from tests.parity.start_lines import run
from tests.parity.step import Scenario, step

_SITE = {"ENROOT_SYSCONF_PATH": "${ROOT}/etc"}
_MOUNTS = (
    "/proc /proc none x-create=dir,rbind,rw,nosuid,nodev,noexec,rslave 0 -1\n"
    "/sys /sys none x-create=dir,rbind,ro,nosuid,nodev,noexec,rslave 0 -1\n"
    "/dev /dev none x-create=dir,rbind,rw,nosuid,noexec,rslave 0 -1\n"
)
_HOOK = '#!/bin/sh\necho "SEEN=${SEEN-} %s" >> "${ENROOT_ENVIRON}"\n'
_SITE_FILES: Mapping[str, str] = {
    "etc/environ.d/10-a.env": "A=system\nB=system\nC=${HOST_VALUE}\n",
    "etc/environ.d/20-b.env": "B=later\n",
    "etc/mounts.d/10-system.fstab": _MOUNTS,
    "etc/mounts.d/20-m.fstab": "${HOME}/m /mnt none x-create=dir,bind,ro 0 0\n",
    "etc/mounts.d/30-m.fstab": "${HOME}/m2 /mnt none bind\n",
    "etc/hooks.d/20-second.sh": '#!/bin/sh\necho second >> "${ENROOT_ROOTFS}/order"\n',
    "etc/hooks.d/10-first.sh": '#!/bin/sh\necho first > "${ENROOT_ROOTFS}/order"\n',
    "home/m/f": "of the system\n",
    "home/m2/f": "mounted over it\n",
}

SYSTEM_FILES = Scenario(
    "system files",
    (
        run("all", 'echo "$A $B <$C>"; cat /mnt/f /order', environ=_SITE),
        run("no other mounts", "ls -d /tmp /var/run 2>/dev/null; ls /etc/hosts", environ=_SITE),
        run("the user's come after", 'echo "$A $B"; cat /mnt/f /order',
            environ={**_SITE, "ENROOT_CONFIG_PATH": "${ROOT}/user"}),
        run("-e last", "-e", "A=e", 'echo "$A $B"', environ=_SITE),
        run("-m last", "-m", "${ROOT}/user/m:/mnt", "cat /mnt/f", environ=_SITE),
        step("failing hook", "start", "app", "true",
             environ={"ENROOT_SYSCONF_PATH": "${ROOT}/failing"}),
        step("mount that fails", "start", "app", "true",
             environ={"ENROOT_SYSCONF_PATH": "${ROOT}/badmount"}),
    ),
    containers={"app": "app"},
    files={
        **_SITE_FILES,
        "user/environ.d/05-u.env": "A=user\n",
        "user/mounts.d/05-u.fstab": "%s/user/m /mnt none bind\n",
        "user/hooks.d/05-u.sh": '#!/bin/sh\necho user >> "${ENROOT_ROOTFS}/order"\n',
        "user/m/f": "of the user\n",
        "failing/hooks.d/10-f.sh": "#!/bin/sh\nexit 3\n",
        "failing/mounts.d/10-system.fstab": _MOUNTS,
        "badmount/mounts.d/10-b.fstab": "/nosuch /mnt none bind\n",
    },
)  # fmt: skip

NETWORK = Scenario(
    "network",
    (
        run("devices", "--net", "cut -d: -f1 -s /proc/net/dev; ls /sys/class/net", environ=_SITE),
        run("loopback is up", "--net", "cat /sys/class/net/lo/operstate;"
            " ip -o addr show lo | grep -o 'inet 127.0.0.1/8'", environ=_SITE),
        run("by variable", "ls /sys/class/net", environ={**_SITE, "ENROOT_UNSHARE_NET": "y"}),
        run("with the others", "-r", "--net", "--pid", "--ipc", "--uts",
            "hostname x; hostname; ls /sys/class/net; echo $$", environ=_SITE),
        run("status", "--net", "exit 5", environ=_SITE),
    ),
    containers={"app": "app"},
    files={"etc/mounts.d/10-system.fstab": _MOUNTS, "etc/hooks.d/": "", "etc/environ.d/": ""},
)  # fmt: skip

SCENARIOS = (SYSTEM_FILES, NETWORK)
