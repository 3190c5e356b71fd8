"""On a machine with a GPU: CUDA, nvidia-smi and PyTorch inside, and that each fails without us.

Run as root (`make test` names these tests where there is no GPU and does not run them):

    pytest -m gpu tests/gpu/test_real_gpu.py -s

The containers are started by an ordinary user. PyTorch comes from the interpreter that runs the
tests, or from the one that PYTORCH_PYTHON names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu.cdi.specs import write
from tests.gpu.containers import ENROOT
from tests.roots.debian import build_rootfs, libc_packages, packages_folder
from tests.roots.machine import build_machine_rootfs, dependencies
from tests.roots.vector_add import build_vector_add

pytestmark = pytest.mark.gpu

USER = 12345
PYTHON = os.environ.get("PYTORCH_PYTHON", sys.executable)

TORCH = """
import torch
print("available", torch.cuda.is_available())
if torch.cuda.is_available():
    print("devices", torch.cuda.device_count(), torch.cuda.get_device_name(0))
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    c = (a.cuda() @ b.cuda()).double().cpu()
    wrong = (c - a.double() @ b.double()).abs().max().item()
    print("matmul", wrong < 1.0, "memory", torch.cuda.memory_allocated() > 0)
"""

FACTS = """
import json, sys, sysconfig
import torch
from pathlib import Path
packages = str(Path(torch.__file__).parents[1])
roots = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), packages}
objects = [str(p) for p in Path(torch.__file__).parent.glob("_C*.so")]
objects += [str(p) for p in Path(torch.__file__).parent.glob("lib/*.so")]
objects += [str(p) for p in Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")]
print(json.dumps({"roots": sorted(roots), "objects": objects, "python": sys.executable}))
"""


class Machine:
    """Data folders of an ordinary user, and containers in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        parent = folder
        while parent != parent.parent and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
            parent = parent.parent
        for name in ("home", "data", "run"):
            (folder / name).mkdir()
        self.environ = {
            "HOME": str(folder / "home"), "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "ENROOT_DATA_PATH": str(folder / "data"), "ENROOT_SYSCONF_PATH": str(folder / "etc"),
            "ENROOT_RUNTIME_PATH": str(folder / "run/enroot"),
        }  # fmt: skip

    def own(self) -> None:
        """Give everything to the ordinary user."""
        for name in ("home", "data", "run"):
            command = ["chown", "-R", f"{USER}:{USER}", str(self.folder / name)]
            subprocess.run(command, check=True)

    def start(self, name: str, *command: str, options: tuple[str, ...] = (), **environ: str):  # type: ignore[no-untyped-def]
        words = [ENROOT, "start", *options, name, *command]
        if os.geteuid() == 0:
            ids = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
            words = ["setpriv", *ids, "--", *words]
        started = time.monotonic()
        done = subprocess.run(
            words, env={**self.environ, **environ}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=280, check=False,
        )  # fmt: skip
        print(f"$ enroot start {' '.join(options)} {name} {command[0]}  "
              f"[{time.monotonic() - started:.2f} s, status {done.returncode}]\n"
              f"{done.stdout}{done.stderr}")  # fmt: skip
        return done


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "gpu")


@pytest.fixture
def foreign(machine: Machine, tmp_path: Path) -> Machine:
    """A container with another C library than the host's; its own where no mirror is in reach."""
    program = build_vector_add(tmp_path / "program")
    box = machine.folder / "data/box"
    try:
        build_rootfs(box, libc_packages("2.36", packages_folder(tmp_path)))
    except OSError:
        build_machine_rootfs(box)
    (box / "usr/bin/vector-add").write_bytes(program.read_bytes())
    (box / "usr/bin/vector-add").chmod(0o755)
    machine.own()
    return machine


@pytest.mark.parametrize("how", ["native", "cdi"])
@pytest.mark.parametrize("writable", [False, True], ids=["read-only", "writable"])
def test_cuda_and_nvidia_smi(foreign: Machine, how: str, writable: bool) -> None:
    options: tuple[str, ...] = ("--rw",) if writable else ()
    environ = {}
    if how == "cdi":
        from enroot_py.operations.gpu import cdi_generate

        write(foreign.folder / "cdi/nvidia.yaml", cdi_generate())
        environ["ENROOT_CDI_DIRS"] = str(foreign.folder / "cdi")
        given = ("--device", "nvidia.com/gpu=all", *options)
    else:
        given = ("--gpus", "all", *options)
    for command in (("vector-add",), ("nvidia-smi", "-L")):
        assert foreign.start("box", *command, options=options).returncode != 0
    added = foreign.start("box", "vector-add", options=given, **environ)
    assert added.returncode == 0 and "bad=0 OK" in added.stdout
    listed = foreign.start("box", "nvidia-smi", "-L", options=given, **environ)
    assert listed.returncode == 0 and "GPU 0:" in listed.stdout and "UUID: GPU-" in listed.stdout
    assert foreign.start("box", "nvidia-smi", "-q", "-x", options=given, **environ).returncode == 0


def test_none_leaves_cuda_without_a_device(foreign: Machine) -> None:
    done = foreign.start("box", "vector-add", options=("--gpus", "none"))
    assert done.returncode != 0 and "answered" in done.stdout


def test_by_the_search_path(foreign: Machine) -> None:
    done = foreign.start(
        "box", "vector-add", options=("--gpus", "all"), ENROOT_GPU_LIBRARY_PATH="yes"
    )
    assert "bad=0 OK" in done.stdout


@pytest.fixture
def torch_box(machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """A container of this machine's own Python with PyTorch, its folders bound from the host."""
    import json

    facts = json.loads(subprocess.check_output([PYTHON, "-c", FACTS], text=True))
    box = machine.folder / "data/box"
    python = Path(facts["python"]).resolve()
    outside = [Path(path) for path in facts["objects"]] + [python]
    build_machine_rootfs(box, outside)
    target = box / "usr/bin/python-inside"
    target.write_bytes(python.read_bytes())
    target.chmod(0o755)
    assert not any("libcuda.so" in path.name for path in dependencies(outside))
    (box / "torch.py.txt").write_text(TORCH)
    machine.own()
    mounts = []
    for root in facts["roots"]:
        mounts += ["--mount", f"{root}:{root}:none:x-create=dir,rbind,ro"]
    path = ":".join(f"{root}" for root in facts["roots"] if root.endswith("site-packages"))
    return machine, (*mounts, "--env", f"PYTHONPATH={path}", "--env", f"PYTHONHOME={_home(facts)}")


def _home(facts: dict[str, list[str]]) -> str:
    """The prefix below which the standard library is."""
    stdlib = next(r for r in facts["roots"] if Path(r).name.startswith("python3"))
    return str(Path(stdlib).parents[1])


def test_pytorch(torch_box: tuple[Machine, tuple[str, ...]]) -> None:
    machine, mounts = torch_box
    command = ("python-inside", "-c", TORCH)
    without = machine.start("box", *command, options=mounts)
    assert "available False" in without.stdout
    given = machine.start("box", *command, options=("--gpus", "all", *mounts))
    assert "available True" in given.stdout and "devices 1" in given.stdout
    assert "matmul True memory True" in given.stdout
    none = machine.start("box", *command, options=("--gpus", "none", *mounts))
    assert none.returncode == 0 and "available False" in none.stdout
