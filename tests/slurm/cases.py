"""What the flags do, as a table: one row is one step and what has to come of it.

Every row is run through every door (doors.py) with the same expectations. `{image}`, `{shared}` and
`{uid}` are filled in; expectations are regular expressions that some line has to match.

Source: pyxis 0.24 tests/*.bats, args.c; docs/compatibility.md names what is different.
"""

from __future__ import annotations

from dataclasses import dataclass, field

IMAGE = "--container-image={image}"
SH = ("sh", "-c")


@dataclass(frozen=True)
class Case:
    """One step.

    Attributes:
        name: what is shown.
        flags: flags and options of srun.
        command: the command and its arguments.
        out: a regular expression for a line of standard output; "" for any output.
        err: the same for standard error.
        status: the exit status wanted, or several that will do; -1 for any but 0.
        environ: the job's variables.
        lacking: a regular expression that no line of the output may match.
        setup: a shell command of the user's before.
        after: another one afterwards; what it prints counts as the step's output.
        submitted: whether a job may be submitted at all.
        again: the step is run twice, and the second run is the one that counts.
    """

    name: str
    flags: tuple[str, ...]
    command: tuple[str, ...] = ("true",)
    out: str = ""
    err: str = ""
    status: int | tuple[int, ...] = 0
    environ: dict[str, str] = field(default_factory=dict)
    lacking: str = ""
    setup: str = ""
    after: str = ""
    submitted: bool = True
    again: bool = False


def ok(name: str, *flags: str, run: str, out: str = "", **more: object) -> Case:
    """A step with the image that prints something."""
    return Case(name, (IMAGE, *flags), (*SH, run), out, **more)  # type: ignore[arg-type]


def refused(name: str, *flags: str, err: str, **more: object) -> Case:
    """Flags that are refused before a job is submitted."""
    return failing(name, *flags, err=err, submitted=False, **more)


def failing(name: str, *flags: str, err: str, **more: object) -> Case:
    """A step that must not run, which only its node can know."""
    return Case(name, flags, err=err, status=-1, **more)  # type: ignore[arg-type]


IMAGES = [
    ok("the command runs in the image", run="cat /etc/mark", out="^image$"),
    ok("a program that only the image has", run="/entry true", out="entrypoint speaks"),
    Case("a command without shell", (IMAGE,), ("cat", "/etc/mark"), "^image$"),
    Case("a relative path", ("--container-image=./image.sqsh",), ("cat", "/etc/mark"), "^image$"),
    Case("arguments stay apart", (IMAGE,), ("printf", "<%s>\\n", "a b", "", "c'd\"e"), "^<a b>$"),
    Case("an empty argument", (IMAGE,), ("printf", "<%s>\\n", ""), "^<>$"),
    Case("the exit status", (IMAGE,), (*SH, "exit 7"), status=7),
    Case("a signal", (IMAGE,), (*SH, "kill -TERM $$"), status=-1),
    Case("a command that is not there", (IMAGE,), ("nosuchprogram",), err="nosuchprogram.*[Nn]o such file|not found: nosuchprogram", status=(2, 127)),
    Case("a folder as a command", (IMAGE,), ("/etc",), err="/etc: Permission denied", status=(13, 126)),
    ok("no new root on the host", run="ls -a /; cat /etc/mark", out="^image$", lacking="^lost.found$"),
    Case("the flag's value in a word of its own", ("--container-image", "{image}"), ("cat", "/etc/mark"), "^image$"),
    Case("the flag given twice alike", (IMAGE, IMAGE), ("cat", "/etc/mark"), "^image$"),
    failing("a file that is not there", "--container-image=/nosuch.sqsh", err="nosuch.sqsh"),
    failing("a file that is no image", "--container-image=/etc/passwd", err="squashfs|image"),
    failing("a folder as image", "--container-image=/etc", err="/etc"),
    refused("two images", IMAGE, "--container-image=/other.sqsh", err="more than once"),
    refused("no value", "--container-image=", err="container-image"),
    Case("no flag at all", (), ("sh", "-c", "test -e /etc/debian_version && echo host"), "^host$"),
]  # fmt: skip

MOUNTS = [
    ok("a folder", "--container-mounts={shared}:/mnt/x", run="test -e /mnt/x/image.sqsh && echo yes", out="^yes$"),
    ok("a file", "--container-mounts=/etc/passwd:/host", run="grep -c root /host", out="^[1-9]"),
    ok("the short form", "--container-mounts={shared}", run="test -e {shared}/image.sqsh && echo yes", out="^yes$"),
    ok("a relative source", "--container-mounts=./:/mnt/x", run="test -e /mnt/x/image.sqsh && echo yes", out="^yes$"),
    ok("several", "--container-mounts=/etc:/a,/usr:/b", run="test -e /a/debian_version && test -d /b/bin && echo yes", out="^yes$"),
    ok("the flag twice", "--container-mounts=/etc:/a", "--container-mounts=/usr:/b", run="test -e /a/debian_version && test -d /b/bin && echo yes", out="^yes$"),
    ok("a device", "--container-mounts=/dev/null:/null", run="test -c /null && echo yes", out="^yes$"),
    ok("tmpfs", "--container-mounts=tmpfs:/t", run="grep ' /t ' /proc/mounts", out="^tmpfs /t tmpfs"),
    ok("tmpfs with options", "--container-mounts=tmpfs:/t:size=1M", run="grep ' /t ' /proc/mounts", out="size=1024k"),
    ok("umount", "--container-mounts=tmpfs:/t,umount:/t", run="grep -c ' /t ' /proc/mounts || echo gone", out="^gone$"),
    Case("read-only", (IMAGE, "--container-mounts={shared}:/m:ro"), ("touch", "/m/new"), err="Read-only", status=-1),
    ok("flags joined by plus", "--container-mounts={shared}:/m:ro+noexec", run="grep ' /m ' /proc/self/mountinfo", out="ro.*noexec"),
    ok("a blank in the target", "--container-mounts=/etc:/mnt/a b", run="test -e '/mnt/a b/debian_version' && echo yes", out="^yes$"),
    ok("a blank in the source", "--container-mounts={shared}/a b:/m", run="cat '/m/f'", out="^blank$", setup="mkdir -p '{shared}/a b'; echo blank > '{shared}/a b/f'"),
    ok("targets are made", "--container-mounts=/etc:/not/there/yet", run="test -e /not/there/yet/debian_version && echo yes", out="^yes$"),
    ok("the target stays beneath the root", "--container-mounts=/etc:/../../../escape", run="test -e /escape/debian_version && echo yes", out="^yes$"),
    ok("over a file of the image", "--container-mounts=/etc/debian_version:/etc/mark", run="cat /etc/mark", out="^[0-9]+"),
    failing("a source that is not there", IMAGE, "--container-mounts=/no/such/source:/m", err="/no/such/source"),
    failing("no such source among others", IMAGE, "--container-mounts=/etc:/m,/no/such:/n", err="/no/such"),
    refused("an unknown kind of source", IMAGE, "--container-mounts=devpts:/m", err="devpts"),
    refused("a target that is no path", IMAGE, "--container-mounts=/etc:m", err="container-mounts"),
    refused("an empty source", IMAGE, "--container-mounts=:/m", err="container-mounts"),
    refused("no value", "--container-mounts=", IMAGE, err="container-mounts"),
]  # fmt: skip

FOLDERS = [
    ok("the image's folder", run="pwd", out="^/srv$"),
    ok("another folder", "--container-workdir=/opt", run="pwd", out="^/opt$"),
    ok("a relative one counts from the root", "--container-workdir=etc", run="pwd", out="^/etc$"),
    ok("no way out", "--container-workdir=../../..", run="pwd", out="^/$"),
    failing("not there", IMAGE, "--container-workdir=/nosuch", err="/nosuch"),
    failing("a file", IMAGE, "--container-workdir=/etc/mark", err="/etc/mark"),
    refused("two folders", IMAGE, "--container-workdir=/a", "--container-workdir=/b", err="more than once"),
    ok("a mounted folder", "--container-mounts=/etc:/m", "--container-workdir=/m", run="pwd", out="^/m$"),
]  # fmt: skip

WHO = [
    ok("the user", "--no-container-remap-root", run="id -u", out="^{uid}$"),
    ok("the map of one user", "--no-container-remap-root", run="cat /proc/self/uid_map", out="^ *{uid} +{uid} +1$"),
    ok("root", "--container-remap-root", run="id -u", out="^0$"),
    ok("root's map", "--container-remap-root", run="cat /proc/self/uid_map", out="^ *0 +{uid} +1$"),
    ok("root may change owners", "--container-remap-root", "--container-writable", run="touch /x && /bin/busybox chown 33 /x && echo yes", out="^yes$"),
    ok("filtered", "--no-container-remap-root", run="grep Seccomp: /proc/self/status", out="Seccomp:.*2"),
    ok("filtered as root", "--container-remap-root", run="grep Seccomp: /proc/self/status", out="Seccomp:.*2"),
    ok("no new privileges", run="grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status", out="CapEff:\\s*0000000000000000"),
    refused("both", IMAGE, "--container-remap-root", "--no-container-remap-root", err="contradict"),
    refused("a value for a switch", IMAGE, "--container-remap-root=yes", err="remap-root"),
]  # fmt: skip

ROOTFS = [
    Case("read-only", (IMAGE, "--container-readonly"), ("touch", "/new"), err="Read-only", status=-1),
    ok("read-only, but not what is mounted", "--container-readonly", "--container-mounts=tmpfs:/t", run="touch /t/x && echo yes", out="^yes$"),
    ok("writable", "--container-writable", run="touch /new && test -e /new && echo yes", out="^yes$"),
    ok("writable and deep", "--container-writable", run="mkdir -p /a/b/c && touch /a/b/c/d && rm -r /etc/mark && test ! -e /etc/mark && echo yes", out="^yes$"),
    ok("nothing stays", "-w", "node1", "--container-writable", run="test ! -e /new && touch /new && echo clean", out="^clean$", again=True),
    refused("both", IMAGE, "--container-writable", "--container-readonly", err="contradict"),
]  # fmt: skip

HOME = [
    ok("mounted", "--container-mount-home", run="grep -c \" $HOME \" /proc/self/mountinfo", out="^[1-9]"),
    ok("not mounted", "--no-container-mount-home", run="grep -c \" {home} \" /proc/self/mountinfo || echo none", out="^none$"),
    refused("both", IMAGE, "--container-mount-home", "--no-container-mount-home", err="contradict"),
]  # fmt: skip

ENTRYPOINTS = [
    ok("not run by default", run="echo ${{FROM_ENTRYPOINT-unset}}; pwd", out="^unset$", lacking="speaks"),
    ok("run", "--container-entrypoint", run="echo <$FROM_ENTRYPOINT>; pwd".replace("<", "[").replace(">", "]"), out="^.1.$"),
    ok("its folder counts", "--container-entrypoint", run="pwd", out="^/opt$"),
    ok("silent", "--container-entrypoint", run="true", lacking="entrypoint speaks"),
    ok("its words on demand", "--container-entrypoint", "--container-entrypoint-log", run="true", err="entrypoint speaks"),
    ok("not run on demand", "--no-container-entrypoint", run="echo ${{FROM_ENTRYPOINT-unset}}", out="^unset$"),
    refused("both", IMAGE, "--container-entrypoint", "--no-container-entrypoint", err="contradict"),
]  # fmt: skip

ENVIRON = [
    ok("the image's", run="echo $IN_IMAGE", out="^yes$"),
    ok("the job's", run="echo $FOO", out="^bar$", environ={"FOO": "bar"}),
    ok("the image wins", run="echo $WHOSE", out="^image$", environ={"WHOSE": "job"}),
    ok("unless the job is to", "--container-env=WHOSE", run="echo $WHOSE", out="^job$", environ={"WHOSE": "job"}),
    ok("several", "--container-env=WHOSE,IN_IMAGE", run="echo $WHOSE $IN_IMAGE", out="^job no$", environ={"WHOSE": "job", "IN_IMAGE": "no"}),
    ok("the flag twice", "--container-env=WHOSE", "--container-env=IN_IMAGE", run="echo $WHOSE $IN_IMAGE", out="^job no$", environ={"WHOSE": "job", "IN_IMAGE": "no"}),
    ok("named but not set", "--container-env=WHOSE", run="echo $WHOSE", out="^image$"),
    ok("named and nowhere", "--container-env=NOWHERE", run="echo ${{NOWHERE-unset}}", out="^unset$"),
    ok("the job's locale stays out", run="echo ${{LC_ALL-unset}}", out="^unset$", environ={"LC_ALL": "de_DE.UTF-8"}),
    ok("unless named", "--container-env=LC_ALL", run="echo ${{LC_ALL-unset}}", out="^C.UTF-8$", environ={"LC_ALL": "C.UTF-8"}),
    ok("PATH is the image's", run="echo $PATH", out="^/usr/local/bin:/usr/bin:/bin$"),
    ok("odd values", run="echo \"$ODD\"", out="^a  'b' \"c\" \\$d$", environ={"ODD": "a  'b' \"c\" $d"}),
    ok("a value of two lines", run="echo \"$TWO\"", out="^second$", environ={"TWO": "first\nsecond"}),
    ok("an empty value", run="echo ${{EMPTY-unset}}.", out="^[.]$", environ={"EMPTY": ""}),
    ok("an equals sign", run="echo $EQ", out="^a=b=c$", environ={"EQ": "a=b=c"}),
    ok("Slurm's variables", run="echo $SLURM_PROCID $SLURM_STEP_NUM_TASKS", out="^0 1$"),
    ok("PyTorch's variables", run="echo $RANK $LOCAL_RANK", out="^0 0$", environ={"PYTORCH_VERSION": "2.0"}),
    ok("none without PyTorch", run="echo ${{RANK-unset}}", out="^unset$"),
    refused("an empty name", IMAGE, "--container-env=A,,B", err="container-env"),
    refused("not a name", IMAGE, "--container-env=A=b", err="container-env"),
]  # fmt: skip

NAMESPACES = [
    ok("network", "--container-unshare=net", run="readlink /proc/self/ns/net; grep -c lo: /proc/net/dev", out="\\Anet:\\[[0-9]+\\]\n1$", lacking="{net}"),
    ok("ipc", "--container-unshare=ipc", run="readlink /proc/self/ns/ipc", out="^ipc:", lacking="{ipc}"),
    ok("uts", "--container-unshare=uts", run="readlink /proc/self/ns/uts", out="^uts:", lacking="{uts}"),
    ok("all", "--container-unshare=net,ipc,uts", run="cd /proc/self/ns; readlink net; readlink ipc; readlink uts", out="\\Anet:.+\nipc:.+\nuts:.+\n\\Z", lacking="{net}|{ipc}|{uts}"),
    ok("shared otherwise", run="readlink /proc/self/ns/ipc", out="{ipc}"),
    ok("shared network otherwise", run="readlink /proc/self/ns/net", out="{net}"),
    ok("a name of its own", "--container-unshare=uts", "--container-remap-root", run="hostname inside && hostname", out="^inside$"),
    refused("an unknown kind", IMAGE, "--container-unshare=foo", err="foo"),
    refused("one unknown among others", IMAGE, "--container-unshare=net,foo", err="foo"),
    refused("an empty one", IMAGE, "--container-unshare=net,", err="unshare"),
]  # fmt: skip

VARIABLES = [
    Case("image", (), ("cat", "/etc/mark"), "^image$", environ={"PYXIS_CONTAINER_IMAGE": "{image}"}),
    Case("the flag wins over the image", (IMAGE,), ("cat", "/etc/mark"), "^image$", environ={"PYXIS_CONTAINER_IMAGE": "/nosuch.sqsh"}),
    ok("mounts", run="test -e /m/debian_version && echo yes", out="^yes$", environ={"PYXIS_CONTAINER_MOUNTS": "/etc:/m"}),
    ok("the flag wins over mounts", "--container-mounts=/usr:/n", run="test ! -e /m && test -e /n/bin && echo yes", out="^yes$", environ={"PYXIS_CONTAINER_MOUNTS": "/etc:/m"}),
    ok("workdir", run="pwd", out="^/opt$", environ={"PYXIS_CONTAINER_WORKDIR": "/opt"}),
    ok("the flag wins over workdir", "--container-workdir=/tmp", run="pwd", out="^/tmp$", environ={"PYXIS_CONTAINER_WORKDIR": "/opt"}),
    ok("remap-root", run="id -u", out="^0$", environ={"PYXIS_CONTAINER_REMAP_ROOT": "1"}),
    ok("remap-root in words", run="id -u", out="^0$", environ={"PYXIS_CONTAINER_REMAP_ROOT": "yes"}),
    ok("no remap-root", run="id -u", out="^{uid}$", environ={"PYXIS_CONTAINER_REMAP_ROOT": "0"}),
    ok("the flag wins over remap-root", "--no-container-remap-root", run="id -u", out="^{uid}$", environ={"PYXIS_CONTAINER_REMAP_ROOT": "1"}),
    ok("an unknown boolean is ignored", run="id -u", out="^{uid}$", environ={"PYXIS_CONTAINER_REMAP_ROOT": "perhaps"}),
    ok("writable", run="touch /new && echo yes", out="^yes$", environ={"PYXIS_CONTAINER_WRITABLE": "1"}),
    Case("readonly", (IMAGE,), ("touch", "/new"), err="Read-only", status=-1, environ={"PYXIS_CONTAINER_READONLY": "1"}),
    ok("entrypoint", run="pwd", out="^/opt$", environ={"PYXIS_CONTAINER_ENTRYPOINT": "1"}),
    ok("env", run="echo $WHOSE", out="^job$", environ={"PYXIS_CONTAINER_ENV": "WHOSE", "WHOSE": "job"}),
    ok("unshare", run="readlink /proc/self/ns/ipc", out="^ipc:", lacking="{ipc}", environ={"PYXIS_CONTAINER_UNSHARE": "ipc"}),
    ok("a bad one is not looked at when the flag is given", "--container-workdir=/opt", run="pwd", out="^/opt$", environ={"PYXIS_CONTAINER_WORKDIR": ""}),
    refused("a bad one counts otherwise", IMAGE, err="nosuchns", environ={"PYXIS_CONTAINER_UNSHARE": "nosuchns"}),
]  # fmt: skip

TASKS = [
    ok("several tasks, one container", "-n4", "-N1", run="echo $(readlink /proc/self/ns/mnt) $(readlink /proc/self/ns/user)", out="\\A(mnt:.+ user:.+)\n(\\1\n){3}\\Z", lacking="{user}"),
    ok("ranks", "-n4", "-N1", run="echo rank $SLURM_PROCID", out="^rank 3$"),
    ok("labels", "-n2", "-N1", "--label", run="echo hello", out="^1: hello$"),
    ok("four nodes", "-N4", run="echo $SLURMD_NODENAME; cat /etc/mark", out="^node4$"),
    ok("sixteen tasks on four nodes", "-N4", "-n16", run="echo $SLURM_PROCID of $SLURM_NTASKS", out="^15 of 16$"),
    ok("local ranks of PyTorch", "-N2", "--ntasks-per-node=2", run="echo $RANK:$LOCAL_RANK", out="^3:1$", environ={"PYTORCH_VERSION": "2"}),
    ok("tasks dealt to nodes in turn", "-w", "node1,node2", "-n4", "-m", "cyclic", run="echo $SLURM_PROCID $SLURMD_NODENAME", out="^1 node2$"),
    ok("tasks packed on nodes", "-w", "node1,node2", "-n4", "-m", "block", "--ntasks-per-node=2", run="echo $SLURM_PROCID $SLURMD_NODENAME", out="^1 node1$"),
    Case("the worst exit status", (IMAGE, "-n4", "-N1"), (*SH, "exit $SLURM_PROCID"), status=3),
    ok("shared memory", "-n2", "-N1", run="f=/dev/shm/pyxis-$SLURM_JOB_ID; touch $f-$SLURM_PROCID; i=0; until test -e $f-0 -a -e $f-1 || test $i -ge 300; do sleep 0.1; i=$((i+1)); done; ls $f-* | wc -l", out="^2\n2$", after="rm -f /dev/shm/pyxis-[0-9]*-[01]"),
]  # fmt: skip

SAVING = [
    ok("an image of the container", "--container-writable", "--container-save={shared}/row1.sqsh", run="touch /added", after="unsquashfs -lc {shared}/row1.sqsh | grep added", out="/added$"),
    ok("a relative path counts from the job's folder", "--container-save=./row2.sqsh", run="true", after="head -c4 {shared}/row2.sqsh", out="hsqs"),
    ok("in place of a file that is there", "--container-save={shared}/row3.sqsh", run="true", setup="echo old > {shared}/row3.sqsh", after="head -c4 {shared}/row3.sqsh", out="hsqs"),
    ok("of a step that failed", "--container-writable", "--container-save={shared}/row4.sqsh", run="touch /added; exit 3", status=3, after="unsquashfs -lc {shared}/row4.sqsh | grep added", out="/added$"),
    ok("of a read-only container", "--container-readonly", "--container-save={shared}/row5.sqsh", run="true", after="head -c4 {shared}/row5.sqsh", out="hsqs"),
    ok("by its variable", run="true", environ={"PYXIS_CONTAINER_SAVE": "{shared}/row6.sqsh"}, after="head -c4 {shared}/row6.sqsh", out="hsqs"),
    ok("the flag wins over the variable", "--container-save={shared}/row7.sqsh", run="true", environ={"PYXIS_CONTAINER_SAVE": "{shared}/never.sqsh"}, after="ls {shared}", out="^row7.sqsh$", lacking="never.sqsh$"),
    ok("to a folder that is not there", "--container-save={shared}/nosuch/x.sqsh", run="echo ran", out="^ran$", err="cannot save.*nosuch"),
    ok("where the user may not write", "--container-save=/etc/x.sqsh", run="echo ran", out="^ran$", err="cannot save.*/etc"),
    refused("to a folder", IMAGE, "--container-save={shared}/", err="a folder"),
    refused("no value", IMAGE, "--container-save=", err="container-save"),
    refused("two paths", IMAGE, "--container-save=/tmp/a", "--container-save=/tmp/b", err="more than once"),
]  # fmt: skip

NAMES = [
    failing("exec of what is not there", "--container-name=absent:exec", err="not running"),
    failing("exec, though an image is given", IMAGE, "--container-name=absent:exec", err="not running"),
    failing("create without an image", "--container-name=absent:create", err="no such container"),
    refused("empty", IMAGE, "--container-name=", err="--container-name: a value is missing"),
    refused("empty, with nothing else", "--container-name=", err="--container-name: a value is missing"),
    refused("a slash", IMAGE, "--container-name=/tmp/x", err="not a container name"),
    refused("no name before the mode", IMAGE, "--container-name=:exec", err="name is empty"),
    refused("an unknown mode", IMAGE, "--container-name=x:attach", err="unknown mode 'attach'"),
    refused("longer than a file's name", IMAGE, "--container-name=" + "a" * 300, err="not a container name"),
    refused("two names", IMAGE, "--container-name=a", "--container-name=b", err="more than once"),
    failing("by its variable", err="variable1: there is no such container", environ={"PYXIS_CONTAINER_NAME": "variable1"}),
    failing("the flag wins over the variable", "--container-name=flag1", err="flag1: there is no such container", environ={"PYXIS_CONTAINER_NAME": "variable1"}),
]  # fmt: skip

TOGETHER = [
    ok("home of a remapped root", "--container-mount-home", "--container-remap-root", run="grep -c ' /root ' /proc/self/mountinfo", out="^[1-9]"),
    ok("a later mount lies over an earlier one", "--container-mounts=/etc:/m,/usr:/m", run="test -d /m/bin && echo yes", out="^yes$"),
    ok("a mount inside a mount", "--container-mounts=tmpfs:/t,/etc:/t/etc", run="touch /t/x; test -e /t/etc/debian_version && echo yes", out="^yes$"),
    ok("propagation and more", "--container-mounts=/usr:/m:ro+nosuid+nodev+rprivate", run="grep ' /m ' /proc/self/mountinfo", out="ro,nosuid,nodev[^-]* - ", lacking="shared:|master:"),
    Case("what the user may not read", (IMAGE, "--container-mounts=/etc/shadow:/s"), ("cat", "/s"), err="denied", status=-1),
    Case("nor as root inside", (IMAGE, "--container-remap-root", "--container-mounts=/etc/shadow:/s"), ("cat", "/s"), err="denied", status=-1),
    ok("readonly wins over writable's variable", "--container-readonly", run="touch /new || echo refused", out="^refused$", environ={"PYXIS_CONTAINER_WRITABLE": "1"}),
    ok("readonly=0 is writable", run="touch /new && echo yes", out="^yes$", environ={"PYXIS_CONTAINER_READONLY": "0"}),
    ok("enroot's own variable", run="touch /new && echo yes", out="^yes$", environ={"ENROOT_ROOTFS_WRITABLE": "y"}),
    ok("the flag wins over enroot's variable", "--container-readonly", run="touch /new || echo refused", out="^refused$", environ={"ENROOT_ROOTFS_WRITABLE": "y"}),
    ok("the flag wins over env's variable", "--container-env=IN_IMAGE", run="echo $WHOSE $IN_IMAGE", out="^image no$", environ={"PYXIS_CONTAINER_ENV": "WHOSE", "WHOSE": "job", "IN_IMAGE": "no"}),
    ok("the job's PATH", "--container-env=PATH", run="echo $PATH", out="/usr/local/bin:/usr/bin:/bin:/usr/local/sbin"),
    ok("the entrypoint sees what env names", "--container-entrypoint", "--container-entrypoint-log", "--container-env=WHOSE", "--container-mounts={shared}/entry1:/entry", run="true", err="saw job no", environ={"WHOSE": "job", "FOO": "no"}, setup="printf '#!/bin/sh\necho saw $WHOSE ${{FOO-no}}\nexec \"$@\"\n' > {shared}/entry1; chmod +x {shared}/entry1"),
    failing("an entrypoint that fails", IMAGE, "--container-entrypoint", "--container-mounts={shared}/entry2:/entry", err="exit code 9", setup="printf '#!/bin/sh\nexit 9\n' > {shared}/entry2; chmod +x {shared}/entry2"),
    ok("a log of no entrypoint", "--container-entrypoint-log", run="pwd", out="^/srv$", lacking="speaks"),
    ok("entrypoint-log by its variable", "--container-entrypoint", run="true", err="entrypoint speaks", environ={"PYXIS_CONTAINER_ENTRYPOINT_LOG": "yes"}),
    ok("no entrypoint wins over the variable", "--no-container-entrypoint", run="pwd", out="^/srv$", environ={"PYXIS_CONTAINER_ENTRYPOINT": "1"}),
    ok("home by its variable", run="grep -c ' {home} ' /proc/self/mountinfo", out="^[1-9]", environ={"PYXIS_CONTAINER_MOUNT_HOME": "true"}),
    ok("no home wins over the variable", "--no-container-mount-home", run="grep -c ' {home} ' /proc/self/mountinfo || echo none", out="^none$", environ={"PYXIS_CONTAINER_MOUNT_HOME": "1"}),
    ok("all tasks in one ipc namespace", "--container-unshare=ipc", "-n3", "-N1", run="readlink /proc/self/ns/ipc > /dev/shm/$SLURM_PROCID; sleep 0.5; cat /dev/shm/[012] | sort | uniq -c", out="^ +3 ipc:"),
    ok("the flag wins over unshare's variable", "--container-unshare=uts", run="readlink /proc/self/ns/ipc", out="{ipc}", environ={"PYXIS_CONTAINER_UNSHARE": "ipc"}),
]  # fmt: skip

EXPORTS = [
    ok("none of the job's variables", "--export=NONE", run="echo ${{FOO-unset}} $IN_IMAGE", out="^unset yes$", environ={"FOO": "bar"}),
    ok("some of them", "--export=FOO", run="echo $FOO ${{OTHER-unset}}", out="^bar unset$", environ={"FOO": "bar", "OTHER": "x"}),
    ok("a value", "--export=ALL,NEW=new", run="echo $NEW $FOO", out="^new bar$", environ={"FOO": "bar"}),
    ok("flags that are given twice", "--export=NONE", "--container-mounts=/etc:/a", "--container-mounts=/usr:/b", run="test -e /a/debian_version && test -d /b/bin && echo yes", out="^yes$"),
]  # fmt: skip

REFERENCES = [
    failing("a registry that does not answer", "--container-image=127.0.0.1:1/no/such:1", err="127.0.0.1:1"),
    refused("an unknown scheme", "--container-image=ftp://host/image:1", err="ftp"),
    refused("capital letters", "--container-image=127.0.0.1:1/No/Such:1", err="No/Such"),
    refused("a digest against a digest", "--container-image=127.0.0.1:1/t/x@sha256:" + "0" * 64, "--container-digest=sha256:" + "1" * 64, err="is not the digest of"),
    refused("a file without its folder", "--container-image=image.sqsh", err="[.]/image.sqsh is the file"),
    failing("a device", "--container-image=/dev/null", err="/dev/null"),
    refused("a name of noise", "--container-image=" + "xY9+/" * 400, err="container-image|image|name"),
]  # fmt: skip

DEFINITIONS = [
    refused("a mistake in the syntax has its line", "--environment={shared}/e1.toml", err="e1.toml:2", setup="printf '# first\nimage = \n' > {shared}/e1.toml"),
    refused("a value of the wrong kind", "--environment={shared}/e2.toml", err="e2.toml: image: expected a string", setup="printf 'image=1\n' > {shared}/e2.toml"),
    refused("a variable that is not set", "--environment={shared}/e3.toml", err="NOWHERE is not set", setup="printf 'image=\"${{NOWHERE}}\"\n' > {shared}/e3.toml"),
    refused("a base that leads back", "--environment={shared}/e4.toml", err="leads back", setup="printf 'base_environment=\"./e4.toml\"\n' > {shared}/e4.toml"),
    refused("a name that no folder has", "--environment=nowhere", err="{shared}", environ={"EDF_PATH": "{shared}"}),
    refused("a mount that is none", "--environment={shared}/e5.toml", err="mounts of the environment file", setup="printf 'image=\"{image}\"\nmounts=[\":/x\"]\n' > {shared}/e5.toml"),
    Case("a base and what is over it", ("--environment={shared}/e6.toml",), (*SH, "pwd; echo $A$B"), "^base-top$", setup="printf 'image=\"{image}\"\n[env]\nA=\"base-\"\nB=\"base\"\n' > {shared}/e6-base.toml; printf 'base_environment=\"./e6-base.toml\"\n[env]\nB=\"top\"\n' > {shared}/e6.toml"),
    Case("readonly wins over the file", ("--environment={shared}/e7.toml", "--container-readonly"), ("touch", "/new"), err="Read-only", status=-1, setup="printf 'image=\"{image}\"\nwritable=true\n' > {shared}/e7.toml"),
    Case("writable in the file", ("--environment={shared}/e8.toml",), (*SH, "touch /new && echo yes"), "^yes$", setup="printf 'image=\"{image}\"\nwritable=true\n' > {shared}/e8.toml"),
    Case("the entrypoint in the file", ("--environment={shared}/e9.toml",), ("pwd",), "^/opt$", setup="printf 'image=\"{image}\"\nentrypoint=true\n' > {shared}/e9.toml"),
    Case("the job's variable in a mount", ("--environment={shared}/e10.toml",), (*SH, "test -e /m/debian_version && echo yes"), "^yes$", environ={"PLACE": "/etc"}, setup="printf 'image=\"{image}\"\nmounts=[\"${{PLACE}}:/m\"]\n' > {shared}/e10.toml"),
    Case("by the variable", (), ("cat", "/etc/mark"), "^image$", environ={"PYXIS_ENVIRONMENT": "{shared}/e11.toml"}, setup="printf 'image=\"{image}\"\n' > {shared}/e11.toml"),
    Case("the file wins over env's names", ("--environment={shared}/e12.toml", "--container-env=WHOSE"), (*SH, "echo $WHOSE"), "^file$", environ={"WHOSE": "job"}, setup="printf 'image=\"{image}\"\n[env]\nWHOSE=\"file\"\n' > {shared}/e12.toml"),
]  # fmt: skip

OURS = [
    ok("a time limit that is long enough", "--container-import-timeout=60", run="cat /etc/mark", out="^image$"),
    ok("a time limit's fractions", "--container-import-timeout=59.5", run="cat /etc/mark", out="^image$"),
    ok("the flag wins over the time limit's variable", "--container-import-timeout=60", run="cat /etc/mark", out="^image$", environ={"PYXIS_CONTAINER_IMPORT_TIMEOUT": "soon"}),
    refused("a time limit of nothing", IMAGE, "--container-import-timeout=0", err="container-import-timeout: not a number of seconds: '0'"),
    refused("a time limit that is none, by the variable", IMAGE, err="PYXIS_CONTAINER_IMPORT_TIMEOUT: not a number of seconds: 'soon'", environ={"PYXIS_CONTAINER_IMPORT_TIMEOUT": "soon"}),
    refused("a time limit that is none", IMAGE, "--container-import-timeout=soon", err="soon"),
    refused("a digest that is none, by the variable", IMAGE, err="PYXIS_CONTAINER_DIGEST: neither .* 'md5:abc'", environ={"PYXIS_CONTAINER_DIGEST": "md5:abc"}),
    ok("a file has no digest to print", run="cat /etc/mark", out="^image$", err="it has no digest", environ={"PYXIS_CONTAINER_DIGEST": "print"}),
    ok("no GPU, and nothing for one", "--container-gpus=void", run="ls /dev/nvidia0 || echo none", out="^none$", environ={"NVIDIA_VISIBLE_DEVICES": "all"}),
    Case("no GPU but the driver, if there is one", (IMAGE, "--container-gpus=none"), (*SH, "ls /dev/nvidia0 || echo none"), err="No such file|no NVIDIA driver", status=(0, 1), lacking="^/dev/nvidia0$"),
    ok("no GPU, by the variable", run="ls /dev/nvidia0 || echo none", out="^none$", environ={"NVIDIA_VISIBLE_DEVICES": "all", "PYXIS_CONTAINER_GPUS": "void"}),
    ok("the flag wins over the variable's GPU", "--container-gpus=void", run="ls /dev/nvidia0 || echo none", out="^none$", environ={"PYXIS_CONTAINER_GPUS": "frob"}),
    failing("a GPU that no node has", IMAGE, "--container-gpus=GPU-00000000-0000-0000-0000-000000000000", err="gpu: "),
    refused("a GPU that is none", IMAGE, "--container-gpus=0,frob", err="--container-gpus: neither a GPU .*'frob'"),
    refused("a GPU that is none, by the variable", IMAGE, err="PYXIS_CONTAINER_GPUS: neither a GPU .*'frob'", environ={"PYXIS_CONTAINER_GPUS": "frob"}),
    refused("no GPU named", IMAGE, "--container-gpus=", err="--container-gpus: a value is missing"),
    refused("GPUs of two minds", IMAGE, "--container-gpus=all", "--container-gpus=none", err="more than once"),
    failing("a device that no node has", IMAGE, "--container-device=nosuch.example/dev=0", err="nosuch.example/dev=0"),
    failing("a device that no node has, by the variable", IMAGE, err="nosuch.example/dev=1", environ={"PYXIS_CONTAINER_DEVICE": "nosuch.example/dev=1"}),
    refused("a device that is none", IMAGE, "--container-device=none", err="--container-device: not a device's name: 'none'"),
    refused("a device that is none, by the variable", IMAGE, err="PYXIS_CONTAINER_DEVICE: not a device's name: 'gpu0'", environ={"PYXIS_CONTAINER_DEVICE": "gpu0"}),
    refused("no device named", IMAGE, "--container-device=", err="--container-device: an empty item"),
    refused("a digest of a file", IMAGE, "--container-digest=sha256:" + "0" * 64, err="digest"),
    refused("a digest that is none", IMAGE, "--container-digest=md5:abc", err="digest"),
    refused("no such environment file", "--environment=/no/such.toml", err="such.toml"),
    Case("an environment file", ("--environment={shared}/env.toml",), (*SH, "cat /etc/mark; echo $ADDED ${{IN_IMAGE-unset}}; pwd"), "^from file unset$", setup="printf 'image=\"{image}\"\\nworkdir=\"/opt\"\\nmounts=[\"/etc:/m\"]\\n[env]\\nADDED=\"from file\"\\nIN_IMAGE=\"\"\\n' > {shared}/env.toml"),
    Case("flags win over the file", ("--environment={shared}/env2.toml", "--container-workdir=/tmp"), ("pwd",), "^/tmp$", setup="printf 'image=\"{image}\"\\nworkdir=\"/opt\"\\n' > {shared}/env2.toml"),
    Case("a file by its name", ("--environment=named",), ("cat", "/etc/mark"), "^image$", setup="printf 'image=\"{image}\"\\n' > {shared}/named.toml", environ={"EDF_PATH": "{shared}"}),
    refused("a file with a mistake", "--environment={shared}/bad.toml", err="bad.toml", setup="printf 'imagine=1\\n' > {shared}/bad.toml"),
]  # fmt: skip

TABLE = {
    "image": IMAGES, "mounts": MOUNTS, "workdir": FOLDERS, "user": WHO, "rootfs": ROOTFS,
    "home": HOME, "entrypoint": ENTRYPOINTS, "env": ENVIRON, "unshare": NAMESPACES,
    "variables": VARIABLES, "tasks": TASKS, "ours": OURS, "saving": SAVING, "names": NAMES,
    "together": TOGETHER, "exports": EXPORTS, "references": REFERENCES, "definitions": DEFINITIONS,
}  # fmt: skip

ALL = [(f"{group}: {case.name}", case) for group, cases in TABLE.items() for case in cases]
