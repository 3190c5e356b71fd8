from __future__ import annotations

from enroot_py.plan.fstab import Mount
from enroot_py.plan.printing import print_plan
from tests.plan.start_plans import IMAGE, plan_of

MOUNTS = (
    Mount("/proc", "/proc", options=("rbind",), passno=-1),
    Mount("/late", "/late"),
    Mount("/never", "/never", passno=3),
)

FOLDER_TEXT = """\
rootfs: /data/enroot/box (folder, read-only, at /data/enroot/box)
namespaces: user (1000:1001 is 1000:1001), mount, cgroup
mount: /proc on /proc type none (rbind)
hook: 10-shadow.sh (built in)
mount: /late on /late type none (defaults)
mount: /x on /x type none (rbind,x-create=auto)
environment: A=b\\nc
command script: /etc/rc of the image, if it has one
login: yes
word: echo
word: \\x1b[31m
"""

IMAGE_TEXT = """\
rootfs: /images/box.sqsh (image under a layer in memory, writable, at /run/me/enroot/overlay)
namespaces: user (1000:1001 is 0:0), mount, cgroup, pid, net
configuration script: /conf.sh (not run: what it adds is not shown)
device: all
device: vendor.com/gpu=1
command script: /my/rc
login: yes
descriptors passed on: 0-2 3
"""


def test_a_plan_is_shown_in_the_order_of_its_steps() -> None:
    plan = plan_of(command=("echo", "\x1b[31m"), mounts=("/x",))
    text = print_plan(
        plan, mounts=MOUNTS, hooks=["10-shadow.sh (built in)"], environ=[("A", "b\nc")]
    )
    assert text == FOLDER_TEXT


def test_every_request_is_shown() -> None:
    plan = plan_of(
        IMAGE, root=True, writable=True, unshare_pid=True, unshare_net=True, conf="/conf.sh",
        rc="/my/rc", gpus="all", devices=("vendor.com/gpu=1",), preserve_fds=1,
    )  # fmt: skip
    assert print_plan(plan, mounts=(), hooks=(), environ=()) == IMAGE_TEXT
