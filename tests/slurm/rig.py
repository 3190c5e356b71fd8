"""A Slurm of four nodes on this machine, out of Debian's packages, for an ordinary user.

Started and stopped by root (the fixture in conftest.py). Every node is a slurmd in a mount
namespace of its own, with its own /tmp, its own /etc/enroot and its own folder at `local`, so that
nodes do not share containers or caches; `shared` is what they share, as a cluster's file system.

All files are in one folder below /var/tmp, which is removed at the end.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.slurm.leftovers import (
    Machine,
    left_files,
    left_mounts,
    left_of_rig,
    left_processes,
)

_SHARE = Path(__file__).resolve().parents[2] / "share/enroot"

NODES = 4
CPUS = 8
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

_SLURM_CONF = """\
ClusterName=rig
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={base}/munge/socket
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd.%n.log
SlurmdDebug=verbose
PlugStackConfig={base}/plugstack.conf
ProctrackType={proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1
ReturnToService=2
MessageTimeout=30
KillWait=5
CompleteWait=0
MinJobAge=60
MpiDefault=none
TreeWidth=16
MaxArraySize=1001
NodeName={prefix}[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 \
Port=[{first_port}-{last_port}] CPUs={cpus} RealMemory=4000
PartitionName=all Nodes={prefix}[1-{nodes}] Default=YES MaxTime=INFINITE OverSubscribe=YES
"""

_CGROUP_CONF = "CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\n"

_ENROOT_CONF = """\
ENROOT_RUNTIME_PATH {base}/local/run-${{USER}}
ENROOT_DATA_PATH {base}/local/data-${{USER}}
ENROOT_CACHE_PATH {base}/local/cache-${{USER}}
ENROOT_TEMP_PATH {base}/local/tmp
ENROOT_ALLOW_HTTP yes
"""

_NODE = """\
set -e
mount --bind {base}/{node} {base}/local
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs tmpfs {base}/overlay
mkdir {base}/overlay/upper {base}/overlay/work
mount -t overlay -o lowerdir=/etc,upperdir={base}/overlay/upper,workdir={base}/overlay/work etc /etc
rm -rf /etc/enroot
mkdir /etc/enroot
cp {base}/enroot.conf /etc/enroot/enroot.conf
cp -r {base}/hooks.d /etc/enroot/hooks.d
exec {daemon}
"""


class Rig:
    """The running cluster.

    Attributes:
        base: the folder that everything is in.
        shared: a folder that the user can write to and that all nodes see.
        user: the ordinary user that the tests act as.
        programs: the folder of the installed commands.
    """

    def __init__(self, *, nodes: int = NODES, prefix: str = "node") -> None:
        """Make the folder.

        Args:
            nodes: how many nodes to start.
            prefix: what their names begin with; another one for a second rig beside the tests'.
        """
        self._names = [f"{prefix}{number}" for number in range(1, nodes + 1)]
        self._prefix = prefix
        self.base = Path(tempfile.mkdtemp(prefix="pyxis-rig-", dir="/var/tmp"))
        self.base.chmod(0o755)
        self.shared = self.base / "shared"
        self.user = _find_user()
        self.programs = Path(sys.executable).parent
        self._login = 0
        self._machines: list[Machine] = []
        self._mounts: set[str] = set()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._proctrack = _choose_proctrack()

    def node(self, number: int) -> Path:
        """The folder that node `number`, counted from 1, has at `local`."""
        return self.base / self._names[number - 1]

    def folder(self, name: str) -> Path:
        """Make an empty folder of the user's in `shared`."""
        path = self.shared / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    def start(self, *, plugstack: str = "") -> None:
        """Start munged, slurmctld and the slurmds; return once the nodes are idle.

        Args:
            plugstack: what the slurmds find in plugstack.conf; it is empty afterwards.
        """
        self._write_files()
        (self.base / "plugstack.conf").write_text(plugstack)
        self._start_munge()
        environ = {"PATH": _PATH, "SLURM_CONF": str(self.base / "slurm.conf")}
        self._spawn(["slurmctld", "-D", "-f", str(self.base / "slurm.conf")], environ)
        for name in self._names:
            self._start_machine(name, f"slurmd -D -N {name} -f {self.base}/slurm.conf", environ)
        self._login = self._start_machine("login", "sleep infinity", environ)
        self._wait_for_nodes()
        # Before that it has not mounted everything.
        ready = Path(f"/proc/{self._login}/comm")
        _wait_until(lambda: ready.read_text() == "sleep\n", "the login node")
        (self.base / "plugstack.conf").write_text("")
        self._mounts = {mount for machine in self._machines for mount in machine.mounts()}

    def _start_machine(self, name: str, daemon: str, environ: dict[str, str]) -> int:
        """Start a daemon on a machine of its own; return its process."""
        script = _NODE.format(base=self.base, node=name, daemon=daemon)
        words = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
        self._spawn(words, environ)
        pid = self._processes[-1].pid
        self._machines.append(Machine(name, self.base / name, pid, name in self._names))
        return pid

    def _write_files(self) -> None:
        uid, gid = self.user.pw_uid, self.user.pw_gid
        for name in ("state", "log", "local", "overlay", "shared"):
            (self.base / name).mkdir()
        for name in ("login", *self._names):
            (self.base / "spool" / name).mkdir(parents=True)
            folder = self.base / name
            folder.mkdir()
            folder.chmod(0o1777)
            (folder / "tmp").mkdir()
            (folder / "tmp").chmod(0o1777)
        os.chown(self.shared, uid, gid)
        nodes = len(self._names)
        port = _free_ports(nodes + 1)
        text = _SLURM_CONF.format(
            base=self.base, host=socket.gethostname(), ctld_port=port, nodes=nodes, cpus=CPUS,
            first_port=port + 1, last_port=port + nodes, proctrack=self._proctrack,
            prefix=self._prefix,
        )  # fmt: skip
        (self.base / "slurm.conf").write_text(text)
        (self.base / "cgroup.conf").write_text(_CGROUP_CONF)
        (self.base / "plugstack.conf").write_text("")
        (self.base / "enroot.conf").write_text(_ENROOT_CONF.format(base=self.base))
        shutil.copytree(_SHARE / "hooks.d", self.base / "hooks.d")
        for hook in ("50-slurm-pmi.sh", "50-slurm-pytorch.sh"):
            shutil.copy(_SHARE / "extra/hooks.d" / hook, self.base / "hooks.d")

    def _start_munge(self) -> None:
        folder = self.base / "munge"
        folder.mkdir()
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o600)
        for path in (folder, folder / "key"):
            shutil.chown(path, "munge", "munge")
        self._spawn(
            [
                "setpriv", "--reuid=munge", "--regid=munge", "--clear-groups",
                "munged", "--foreground", "--force", f"--key-file={folder}/key",
                f"--socket={folder}/socket", f"--pid-file={folder}/pid",
                f"--seed-file={folder}/seed", f"--log-file={folder}/log",
            ],
            {"PATH": _PATH},
        )  # fmt: skip
        _wait_until(lambda: (folder / "socket").exists(), "munged")

    def _spawn(self, command: list[str], environ: dict[str, str]) -> None:
        log = self.base / "log" / f"{len(self._processes)}.out"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd="/", start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)

    def _wait_for_nodes(self) -> None:
        try:
            _wait_until(self._is_idle, "the nodes")
        except TimeoutError as error:
            logs = "".join(path.read_text()[-1500:] for path in (self.base / "log").iterdir())
            raise TimeoutError(f"{error}\n{logs}") from error

    def stop(self) -> None:
        """End every job and every daemon, and remove the folder."""
        try:
            if self._login:
                self._end_jobs()
        finally:
            self._end_daemons()
        self._remove_cgroups()
        shutil.rmtree(self.base, ignore_errors=True)

    def _end_jobs(self) -> None:
        self.run("scancel", "--user", self.user.pw_name)
        # A slurmstepd outlives its slurmd: steps have to be over before the daemons go.
        try:
            _wait_until(self._is_idle, "the end of all jobs", timeout=60)
        except TimeoutError as error:
            print(error, file=sys.stderr)

    def _end_daemons(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # Their numbers may be others' from now on.
        self._processes, self._machines, self._login = [], [], 0

    def _remove_cgroups(self) -> None:
        for name in self._names:
            for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
                for folder, _, _ in os.walk(top, topdown=False):
                    try:
                        os.rmdir(folder)
                    except OSError:
                        pass  # a process is in it: `survivors` tells

    def run(
        self,
        *words: str,
        timeout: float = 90,
        stdin: str = "",
        cwd: Path | None = None,
        **environ: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user and return what it printed; never raises for its status."""
        return subprocess.run(
            self.as_user(words, cwd=cwd), env=self.environ(**environ), input=stdin,
            capture_output=True, text=True, errors="replace", timeout=timeout, check=False,
        )  # fmt: skip

    def popen(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command as the user."""
        return subprocess.Popen(
            self.as_user(words), env=self.environ(**environ), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def as_root(self, node: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root on a node, and see what that node sees; it has to succeed."""
        there = ["nsenter", "-m", "-t", str(self._machines[node - 1].pid), "--wd=/", "--"]
        return subprocess.run([*there, *words], capture_output=True, text=True, check=True)

    @contextmanager
    def small_disk(self, node: int, path: Path, size: str) -> Iterator[None]:
        """Have a small file system of the user's in place of a folder of a node's `local`.

        Args:
            node: number of the node.
            path: the folder as steps there name it.
            size: as the option of tmpfs takes it.
        """
        options = f"mode=700,size={size},uid={self.user.pw_uid},gid={self.user.pw_gid}"
        self.as_root(node, "mkdir", "-p", str(path))
        self.as_root(node, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path))
        try:
            yield
        finally:
            self.as_root(node, "umount", str(path))
            self.as_root(node, "rmdir", str(path))

    def as_user(
        self, words: tuple[str, ...], *, cwd: Path | None = None, node: int = 0
    ) -> list[str]:
        """The words that run a command as the ordinary user on the login node.

        Args:
            words: the command.
            cwd: where; `shared` by default.
            node: the number of a node to run it on instead, past Slurm.
        """
        uid, gid = self.user.pw_uid, self.user.pw_gid
        pid = self._machines[node - 1].pid if node else self._login
        there = ["nsenter", "-m", "-t", str(pid), f"--wdns={cwd or self.shared}", "--"]
        user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--"]
        return [*there, *user, *words]

    def environ(self, **more: str) -> dict[str, str]:
        """The environment of a user who has logged in to the cluster."""
        return {
            "HOME": self.user.pw_dir,
            "USER": self.user.pw_name,
            "LOGNAME": self.user.pw_name,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "PATH": f"{self.programs}:{_PATH}",
            "SLURM_CONF": str(self.base / "slurm.conf"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **more,
        }

    def wait_for_job(self, job: str, *, timeout: float = 60) -> str:
        """Wait until a job has ended and its nodes are free; return its state."""

        states: set[str] = set()
        active = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}

        def is_over() -> bool:
            done = self.run("scontrol", "-o", "show", "job", job)
            words = [word for word in done.stdout.split() if word.startswith("JobState=")]
            states.clear()
            states.update(word.partition("=")[2] for word in words)
            # A daemon that is too busy to answer says nothing of the job.
            known = states or "Invalid job id" in done.stderr
            return bool(known) and not states & active

        _wait_until(is_over, f"job {job}", timeout=timeout)
        return " ".join(sorted(states))

    def wait_until_idle(self) -> None:
        """Wait until no job runs or ends on any node, epilogs included."""

        _wait_until(self._is_idle, "idle nodes")

    def _is_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-o", "%D %t").stdout.strip()
        return states == f"{len(self._names)} idle"

    @contextmanager
    def plugstack(self, text: str) -> Iterator[None]:
        """Have SPANK plugins for as long as the `with` block lasts (slurmd itself excepted).

        An epilog reads the file anew: what was there when a job ended stays until its epilog is
        through.
        """
        path = self.base / "plugstack.conf"
        before = path.read_text()
        self.wait_until_idle()
        _replace(path, text)
        try:
            yield
            self.wait_until_idle()
        finally:
            _replace(path, before)

    def remains(self, *, within: float = 20) -> list[str]:
        """What containers have left on any machine: files, processes and mounts.

        Args:
            within: seconds to wait for ends that are on their way.
        """
        deadline = time.monotonic() + within
        while (left := self._remains()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _remains(self) -> list[str]:
        uid = self.user.pw_uid
        left = [path for machine in self._machines for path in left_files(machine, uid)]
        left += left_processes(uid, self.base, self._machines)
        return left + left_mounts(self.base, self._machines, self._mounts)

    def survivors(self, *, within: float = 20) -> list[str]:
        """What is left of the rig after `stop`: nothing may be.

        Args:
            within: seconds to wait for ends that are on their way.
        """
        deadline = time.monotonic() + within
        while (left := left_of_rig(self.base, self._names)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def _replace(path: Path, text: str) -> None:
    """Write a file at one stroke: an epilog that reads half of it would not see the plugin."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def _find_user() -> pwd.struct_passwd:
    """The user that prepare.sh has made, or the one who is named."""
    return pwd.getpwnam(os.environ.get("PYXIS_TEST_USER", "pyxis-test"))


def _choose_proctrack() -> str:
    # Slurm 22.05 starts on cgroup2 with systemd only; on cgroup1 its own tracking is the usual one.
    freezer = Path("/sys/fs/cgroup/freezer/tasks")
    return "proctrack/cgroup" if freezer.exists() else "proctrack/linuxproc"


def _free_ports(count: int) -> int:
    """Return the first of `count` adjacent ports that nobody listens on.

    Below those that jobs of the tests take, which are 21000 and more.
    """
    for first in range(10000 + os.getpid() % 9000, 20000, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


def _wait_until(condition, what: str, *, timeout: float = 60) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(0.05)
