"""One container: `enroot start`, in the namespaces of its pod, as the kubelet would have it run."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kubernetes.emulator.expansion import expand
from tests.kubernetes.emulator.objects import EmulatorError, Manifest, Pod
from tests.kubernetes.emulator.volumes import BindMount

_ENROOT = "import sys; from enroot_py.cli.main import main; sys.exit(main())"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEV_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
              "ptmx": "pts/ptmx"}  # fmt: skip
_SHM_SIZE = "64m"
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OF_THE_START = ("SHELL", "SHLVL", "OLDPWD", "TERM")
"""Variables that come from enroot or its shell, and that no kubelet sets."""


@dataclass(slots=True)
class Container:
    """A container of a running pod.

    Attributes:
        image: its squashfs file.
        environ: what the kubelet adds to the image's variables.
        folder: its configuration, writable layer and log.
        names: the file that is its /etc/hosts.
    """

    manifest: Manifest
    pod: Pod
    image: Path
    environ: Mapping[str, str]
    mounts: Sequence[BindMount]
    folder: Path
    names: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The container's name in its pod."""
        return str(self.manifest["name"])

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / "log"

    def start(self, join: Sequence[str]) -> None:
        """Start it.

        Args:
            join: the words that run a command in the pod's namespaces.

        Raises:
            EmulatorError: if it must not or cannot run.
        """
        options = self._options()
        environ = {"PATH": os.environ["PATH"], "HOME": "/"}
        self._write_mounts()
        self._write_script()
        for kind in ("RUNTIME", "DATA", "CACHE", "TEMP"):
            path = self.folder / kind.lower()
            path.mkdir()
            environ[f"ENROOT_{kind}_PATH"] = str(path)
        environ["ENROOT_SYSCONF_PATH"] = str(self.folder)
        words = [*self.manifest.get("command", ()), *self.manifest.get("args", ())]
        words = [expand(word, self.environ) for word in words]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*join, sys.executable, "-c", _ENROOT, "start", *options, "--", str(self.image),
                 *words],
                env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd="/", start_new_session=True,
            )  # fmt: skip

    def status(self) -> int | None:
        """The exit status, 128 + N for a death by signal N; None while it runs."""
        status = self._process.poll() if self._process else 0
        return 128 - status if status is not None and status < 0 else status

    def send_signal(self, number: int) -> None:
        """Signal its first process; nothing happens if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self) -> None:
        """Wait for the end of a container that was killed."""
        if self._process is not None:
            self._process.wait()

    def _options(self) -> list[str]:
        security = {
            **self.pod.spec.get("securityContext", {}),
            **self.manifest.get("securityContext", {}),
        }
        uid = security.get("runAsUser", 0)
        if uid == 0 and security.get("runAsNonRoot"):
            raise EmulatorError("CreateContainerConfigError: runs as root, and must not")
        if uid not in (0, os.getuid()):
            raise EmulatorError(f"user {uid} is not emulated: only {os.getuid()}, and root")
        options = ["--pid", f"--rc={self.folder}/rc"]
        options += ["--root"] if uid == 0 else []
        return options if security.get("readOnlyRootFilesystem") else [*options, "--rw"]

    def _write_script(self) -> None:
        """What runs in place of the image's /etc/rc: variables, directory, command."""
        # The runtime looks the home up in the image, where ordinary users are not known.
        home = "/root" if "--root" in self._options() else "/"
        environ = {"HOSTNAME": self.pod.hostname, "HOME": home, **self.environ}
        lines = [f"unset {' '.join(_OF_THE_START)}"]
        for name, value in environ.items():
            if not _SHELL_NAME.match(name):
                raise EmulatorError(f"a variable of the name {name!r} is not emulated")
            lines.append(f"export {name}={shlex.quote(value)}")
        directory = shlex.quote(self.manifest.get("workingDir", "/"))
        # The runtime makes the directory if it is not there.
        lines.append(f"[ -d {directory} ] || mkdir -p {directory}")
        lines.append(f"cd {directory} || exit 128")
        lines.append("unset OLDPWD")
        lines.append('exec "$@"' if self.manifest.get("command") else ". /etc/rc")
        script = self.folder / "rc"
        script.touch(mode=0o600)
        script.write_text("\n".join(lines) + "\n")

    def _write_mounts(self) -> None:
        """The container's /dev, names and volumes, and nothing that this machine configures."""
        folder = self.folder
        (folder / "mounts.d").mkdir(parents=True)
        files = {
            "/etc/hostname": f"{self.pod.hostname}\n",
            "/etc/resolv.conf": "nameserver 127.0.0.1\n",
            **self.pod.files,
        }
        for path, text in files.items():
            place = folder / "files" / path[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        _make_devices(folder / "dev")
        rows = [
            "/proc /proc none x-create=dir,rbind,nosuid,nodev,noexec 0 -1",
            "/sys /sys none x-create=dir,rbind,ro,nosuid,nodev,noexec 0 -1",
            _bind(folder / "dev", "/dev"),
            *(_bind(Path("/dev") / name, f"/dev/{name}") for name in _DEVICES),
            f"tmpfs /dev/shm tmpfs x-create=dir,nosuid,nodev,mode=1777,size={_SHM_SIZE} 0 -1",
            "devpts /dev/pts devpts x-create=dir,newinstance,ptmxmode=0666,mode=620 0 -1",
            _bind(self.names, "/etc/hosts", read_only=True),
            *(_bind(folder / "files" / path[1:], path, read_only=True) for path in files),
            *(_bind(row.source, row.target, read_only=row.read_only) for row in self.mounts),
        ]
        (folder / "mounts.d/10-pod.fstab").write_text("\n".join(rows) + "\n")


def _make_devices(folder: Path) -> None:
    folder.mkdir()
    for name in _DEVICES:
        (folder / name).touch()
    for name in ("shm", "pts"):
        (folder / name).mkdir()
    for name, target in _DEV_LINKS.items():
        (folder / name).symlink_to(target)


def _bind(source: Path, target: str, *, read_only: bool = False) -> str:
    kind = "dir" if source.is_dir() else "file"
    options = ["rbind", "nosuid", f"x-create={kind}", *(["ro"] if read_only else [])]
    places = f"{_escape(str(source))} {_escape(posixpath.normpath(target))}"
    return f"{places} none {','.join(options)} 0 -1"


def _escape(path: str) -> str:
    """fstab's escapes; `$` is a variable there."""
    for character in "\\ \t\n$":
        path = path.replace(character, f"\\{ord(character):03o}")
    return path
