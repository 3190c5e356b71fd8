"""Command lines that start containers."""

from __future__ import annotations

from tests.parity.step import Scenario, Step, step

_APP = {"app": "app", "entry": "entry"}
_WHO = 'echo "$(id -u) $(id -g)" | sed "s/^${UID} ${GID}$/mine/"'
_RIGHTS = (
    "grep -E '^Cap(Inh|Prm|Eff)' /proc/self/status"
    " | sed 's/\t0000000000000000/ none/; s/\t[0-9a-f]*$/ some/'"
)
_SYSTEM = (
    "for d in proc sys dev dev/shm tmp run etc/hosts etc/hostname etc/resolv.conf; do"
    ' grep -q " /$d " /proc/self/mountinfo && echo $d; done; ls -d /dev/null /dev/pts'
)
_TOUCH = "touch /new 2>/dev/null && echo written || echo refused"


def run(name: str, *words: str, **more: object) -> Step:
    """`start [OPTIONS] app sh -c SCRIPT`: the last word is the script."""
    return step(name, "start", *words[:-1], "app", "sh", "-c", words[-1], **more)


COMMANDS = Scenario(
    "commands",
    (
        step("image's command", "start", "app"),
        step("a command", "start", "app", "echo", "hello"),
        step(
            "arguments", "start", "app",
            "printf", "<%s>\\n", "a b", "", "*", "$HOME", "'q'", "\\",
        ),
        step("dashes after the name", "start", "app", "echo", "--rw", "--", "-x"),
        step("-- before the name", "start", "--", "app", "echo", "x"),
        step("entrypoint and its command", "start", "entry"),
        step("entrypoint and arguments", "start", "entry", "own", "words here"),
        step("stdin", "start", "app", "cat", answer="one\ntwo\n"),
        run("stderr and stdout", "echo out; echo err >&2"),
        run("status 0", "exit 0"),
        run("status 7", "exit 7"),
        run("status 255", "exit 255"),
        run("signal", "kill -TERM $$"),
        step("not found", "start", "app", "nosuch"),
        step("not executable", "start", "app", "/etc/app"),
        step("a folder", "start", "app", "/etc"),
        step("missing container", "start", "nosuch", "true"),
        step("missing image", "start", "./nosuch.sqsh", "true"),
        step("name with a slash", "start", "x/app", "true"),
        step("empty name", "start", "", "true"),
        step("no image", "start", "text", "true"),
        step("image", "start", "${IMAGES}/app.sqsh"),
        step("image, writing", "start", "--rw", "${IMAGES}/app.sqsh", "sh", "-c", _TOUCH),
        step("image, reading", "start", "${IMAGES}/app.sqsh", "sh", "-c", _TOUCH),
        step("image, status", "start", "${IMAGES}/app.sqsh", "sh", "-c", "exit 9"),
        step("image without a shell", "start", "${IMAGES}/bare.sqsh", "true"),
        step("what starts leave", "list", tree="container app"),
    ),
    containers=_APP,
    files={"work/text": "not an image\n"},
)  # fmt: skip

IDENTITY = Scenario(
    "identity",
    (
        run("who", _WHO),
        run("--root", "--root", _WHO),
        run("-r", "-r", _WHO),
        run("root by variable", _WHO, environ={"ENROOT_REMAP_ROOT": "yes"}),
        run("no root by variable", _WHO, environ={"ENROOT_REMAP_ROOT": "no"}),
        run("root in passwd", "-r", "head -n1 /etc/passwd | cut -d: -f1,3,4,6"),
        run("home", 'echo "$HOME $USER $LOGNAME $SHELL"'),
        run("home of root", "-r", 'echo "$HOME"'),
        run("home mounted", 'echo "$HOME"; ls -a "$HOME"', environ={"ENROOT_MOUNT_HOME": "yes"}),
        run("home mounted, root", "-r", "pwd; ls /root", environ={"ENROOT_MOUNT_HOME": "yes"}),
        run("cwd", "pwd; echo ${OLDPWD-unset}"),
        run("umask", "umask"),
        run("no new rights", "grep -E '^(NoNewPrivs|CapAmb|Seccomp):' /proc/self/status"),
        run("rights", _RIGHTS),
        run("rights of root", "-r", _RIGHTS),
        run("chown as root", "-rw", "touch /c && chown 0:0 /c && stat -c %u:%g /c"),
        run("chown as root, spelt out", "-r", "-w", "touch /c && stat -c %u:%g /c"),
        run("descriptors", "ls /proc/self/fd | wc -l"),
        run("login shell", "echo $0; echo ${LOGIN-no}"),
        run("no login shell", "echo ${LOGIN-no}", environ={"ENROOT_LOGIN_SHELL": "no"}),
    ),
    containers=_APP,
    files={"home/mine": "x"},
)

ENVIRONMENT = Scenario(
    "environment",
    (
        run("all of it", "env", look="sorted"),
        run("exactly", 'printf "<%s>\\n" "$SPACES" "$DOUBLE" "$SINGLE" "$INNER" "$DOLLAR"'),
        step("without a login shell", "start", "app", "env", look="sorted",
             environ={"ENROOT_LOGIN_SHELL": "no"}),
        run("-e K=V", "-e", "K=V", 'echo "<$K>"'),
        run("--env", "--env", "K=V W", 'echo "<$K>"'),
        run("--env=", "--env=K=a=b", 'echo "<$K>"'),
        run("-e K", "-e", "HOST_VALUE", 'echo "<$HOST_VALUE>"'),
        run("-e K, unset", "-e", "NOT_SET", 'echo "<${NOT_SET-unset}>"'),
        run("-e K=", "-e", "K=", 'echo "<${K-unset}>"'),
        run("-e K, quoted", "-e", 'K="q"', 'echo "<$K>"'),
        run("-e K, dollar", "-e", "K=${HOST_VALUE} $HOME", 'echo "<$K>"'),
        run("-e over the image's", "-e", "PLAIN=own", 'echo "<$PLAIN>"'),
        run("-e twice", "-e", "K=1", "-e", "K=2", 'echo "<$K>"'),
        run("-e two", "-e", "K=1", "-e", "L=2", 'echo "<$K$L>"'),
        run("-e ENROOT", "-e", "ENROOT_X=1", 'echo "<${ENROOT_X-unset}>"'),
        run("-e PATH", "-e", "PATH=/bin:/x", 'echo "<$PATH>"'),
        run("-e HOME", "-e", "HOME=/x", 'echo "<$HOME>"'),
        run("-e 1K", "-e", "1K=x", "true"),
        run("-e of a dash", "-e", "a-b=x", "true"),
        run("-e of =", "-e", "=x", "true"),
        run("host's is not inherited", 'echo "<${HOST_VALUE-unset}>"'),
    ),
    containers=_APP,
)  # fmt: skip

MOUNTS = Scenario(
    "mounts",
    (
        run("-m", "-m", "${ROOT}/shared:/mnt", "cat /mnt/f"),
        run("--mount", "--mount", "${ROOT}/shared:/mnt", "cat /mnt/f"),
        run("--mount=", "--mount=${ROOT}/shared:/mnt", "cat /mnt/f"),
        run("a file", "-m", "${ROOT}/shared/f:/mnt/f", "cat /mnt/f"),
        run("a target to make", "-m", "${ROOT}/shared:/a/b/c", "cat /a/b/c/f; ls /a"),
        run("written to", "-m", "${ROOT}/shared:/mnt", "echo x > /mnt/w && echo ok"),
        run("options", "-m", "${ROOT}/shared:/mnt:none:bind,ro", "echo x > /mnt/w || echo refused"),
        run(
            "options alone", "-m", "${ROOT}/shared:/mnt:x-create=dir,bind,ro",
            "ls /mnt; grep -c ' /mnt ro' /proc/self/mountinfo",
        ),
        run(
            "tmpfs", "-m", "tmpfs:/scratch:tmpfs:x-create=dir,size=1m,mode=700",
            "stat -c %a /scratch",
        ),
        run("two", "-m", "${ROOT}/shared:/m1", "-m", "${ROOT}/shared/f:/f2", "ls /m1; cat /f2"),
        run("missing source", "-m", "${ROOT}/nosuch:/mnt", "ls /mnt"),
        run("missing source, nofail", "-m", "${ROOT}/nosuch:/mnt:none:bind,nofail", "ls /mnt"),
        run("silent", "-m", "${ROOT}/nosuch:/mnt:none:bind,nofail,silent", "ls /mnt"),
        run("unknown file system", "-m", "x:/mnt:nosuchfs", "ls /mnt"),
        run("unknown option", "-m", "${ROOT}/shared:/mnt:none:bind,frobnicate", "ls /mnt"),
        run("space", "-m", "${ROOT}/shared :/mnt", "true"),
        run("relative source", "-m", "../shared:/mnt", "cat /mnt/f"),
        run("target is a link", "-m", "${ROOT}/shared:/bin/link", "ls /bin/link"),
        run("of a variable", "-m", "${HOST_VALUE}:/mnt", "true"),
        run("volume", "touch /vol/x && echo ok; grep -c ' /vol ' /proc/self/mountinfo"),
        run("root filesystem", _TOUCH),
        run("--rw", "--rw", _TOUCH),
        run("it stays", "ls /new"),
        run("writable by variable", "rm /new && echo gone",
            environ={"ENROOT_ROOTFS_WRITABLE": "y"}),
        run("not writable by variable", _TOUCH, environ={"ENROOT_ROOTFS_WRITABLE": "no"}),
        run("system", _SYSTEM),
        run("modes", "stat -c '%a %n' /tmp /dev/shm /proc /sys; touch /tmp/x && echo ok"),
        run("/proc", "cat /proc/self/comm; test -e /proc/1/status && echo first"),
        run("lock", "ls -a / | grep -c lock; echo x > /.lock 2>/dev/null || echo refused"),
        step("what starts leave", "list", tree="container app"),
    ),
    containers=_APP,
    files={"shared/f": "shared file\n"},
)  # fmt: skip

NAMESPACES = Scenario(
    "namespaces",
    (
        run("--pid", "--pid", "echo $$; cat /proc/1/comm"),
        run("--ipc", "--ipc", "ls /dev | grep -v log | sort"),
        run("--uts", "-r", "--uts", "hostname own; hostname"),
        run("--uts, no root", "--uts", "hostname own 2>/dev/null && hostname || echo refused"),
        run("source alone", "-m", "${ROOT}/shared", "ls ${ROOT}/shared"),
        run("target that leaves", "-m", "${ROOT}/shared:/../../out", "ls /out"),
        run("by variable", "echo $$", environ={"ENROOT_UNSHARE_PID": "y"}),
        run("--pid, status", "--pid", "exit 5"),
        run("--pid, signal", "--pid", "kill -KILL $$; echo alive"),
    ),
    containers=_APP,
    files={"shared/f": "shared file\n"},
)

_CONF = """#ENROOT_ROOTFS_WRITABLE=yes
# ENROOT_ROOTFS=app
environ() {
    echo "FROM_CONF=1"
    echo "KEPT=${HOST_VALUE}"
    echo "PLAIN='own'"
}
mounts() {
    echo "%s/shared /mnt none x-create=dir,bind"
    echo "${ENROOT_ROOTFS}/etc/app /seen none x-create=file,bind"
}
hooks() {
    echo "HOOKED=yes" >> "${ENROOT_ENVIRON}"
    echo "tmpfs /by-hook tmpfs x-create=dir,mode=711" >> "${ENROOT_MOUNTS}"
    touch "${ENROOT_ROOTFS}/hooked"
}
rc() {
    echo "rc of $# arguments: $@"
    [ $# -eq 0 ] || exec "$@"
}
"""

CONFIGURATION = Scenario(
    "configuration",
    (
        step("-c", "start", "-c", "full.conf", "app", "sh", "-c",
             'echo "$FROM_CONF <$KEPT> $PLAIN $HOOKED"; cat /mnt/f /seen; stat -c %a /by-hook;'
             " ls /hooked; " + _TOUCH),
        step("--conf, no command", "start", "--conf", "full.conf", "app"),
        step("--conf=", "start", "--conf=environ.conf", "app", "sh", "-c", 'echo "$FROM_CONF"'),
        step("-c and -e", "start", "-c", "environ.conf", "-e", "FROM_CONF=e", "app", "sh", "-c",
             'echo "$FROM_CONF"'),
        step("missing script", "start", "-c", "nosuch.conf", "app", "true"),
        step("script that is not shell", "start", "-c", "broken.conf", "app", "true"),
        step("script that fails", "start", "-c", "fails.conf", "app", "true"),
        step("hook that fails", "start", "-c", "hook.conf", "app", "true"),
        step("batch", "batch", "full.conf", "echo", "x y"),
        step("batch, no command", "batch", "full.conf"),
        step("batch without a root filesystem", "batch", "environ.conf"),
        step("batch of a missing script", "batch", "nosuch.conf"),
        step("--rc", "start", "--rc", "rc.sh", "app", "a", "b c"),
        step("--rc=", "start", "--rc=rc.sh", "app"),
        step("--rc missing", "start", "--rc", "nosuch.sh", "app"),
        step("--rc over the script's", "start", "-c", "full.conf", "--rc", "rc.sh", "app", "x"),
        step("--rc that is empty", "start", "--rc", "empty.sh", "app", "echo", "x"),
    ),
    containers=_APP,
    files={
        "work/full.conf": _CONF,
        "work/environ.conf": 'environ() {\n    echo "FROM_CONF=1"\n}\n',
        "work/broken.conf": "environ() {\n",
        "work/fails.conf": "false\n",
        "work/hook.conf": "hooks() {\n    return 3\n}\n",
        "work/rc.sh": 'echo "own rc: $#: $*"\nexit 4\n',
        "work/empty.sh": "",
        "shared/f": "shared file\n",
    },
)  # fmt: skip

USER_FILES = Scenario(
    "user files",
    (
        run("all", 'echo "$A $B <$C> <$Q>"; cat /mnt/f; echo "$PLAIN $ORDER"; cat /hooked'),
        run("-e last", "-e", "A=e", 'echo "$A"'),
        run("hook's surroundings", 'echo "$SEEN"'),
        step("another folder", "start", "app", "sh", "-c", 'echo "<${A-unset}>"',
             environ={"ENROOT_CONFIG_PATH": "${ROOT}/nothing"}),
        step("failing hook", "start", "app", "true",
             environ={"ENROOT_CONFIG_PATH": "${ROOT}/failing"}),
        step("mount that fails", "start", "app", "true",
             environ={"ENROOT_CONFIG_PATH": "${ROOT}/badmount"}),
    ),
    containers=_APP,
    files={
        "home/.config/enroot/environ.d/10-a.env":
            "# comment\n\n  A=1\nB=${HOST_VALUE}\nC=$HOST_VALUE\nQ='q'\nnot a line\nORDER=10\n",
        "home/.config/enroot/environ.d/20-b.env": "PLAIN=user\nORDER=20\nENROOT_NO=1\n",
        "home/.config/enroot/environ.d/30-c.txt": "ORDER=30\n",
        "home/.config/enroot/mounts.d/10-m.fstab":
            "# comment\n${HOME}/m /mnt none x-create=dir,bind,ro 0 0\n",
        "home/.config/enroot/mounts.d/20-m.txt": "bad line\n",
        "home/m/f": "by fstab\n",
        "home/.config/enroot/hooks.d/10-h.sh":
            '#!/bin/sh\necho hooked > "${ENROOT_ROOTFS}/hooked"\n'
            'echo "ORDER=hook" >> "${ENROOT_ENVIRON}"\n'
            'echo "SEEN=${ENROOT_PID:+pid} ${ENROOT_ROOTFS:+rootfs} ${ENROOT_ENVIRON:+environ}'
            ' ${ENROOT_MOUNTS:+mounts} ${ENROOT_WORKDIR:+workdir} ${PLAIN-none} ${HOST_VALUE}"'
            ' >> "${ENROOT_ENVIRON}"\n',
        "home/.config/enroot/hooks.d/20-not-executable": "exit 1\n",
        "nothing/": "",
        "failing/hooks.d/10-f.sh": "#!/bin/sh\nexit 3\n",
        "badmount/mounts.d/10-b.fstab": "/nosuch /mnt none bind\n",
    },
)  # fmt: skip

EXEC = Scenario(
    "exec",
    (
        step("the container", "start", "-e", "MARK=1", "--rw", "app", "sh", "-c",
             "cd /etc; echo ready; exec sleep 60", background=True),
        step("list -f", "list", "-f", look="table"),
        step("command", "exec", "${PID}", "echo", "inside", "a b"),
        step("environment", "exec", "${PID}", "sh", "-c", 'echo "<$MARK> <$PLAIN> <$HOST_VALUE>"'),
        step("-e", "exec", "-e", "K=V", "${PID}", "sh", "-c", 'echo "<$K>"'),
        step("--env=", "exec", "--env=HOST_VALUE", "${PID}", "sh", "-c", 'echo "<$HOST_VALUE>"'),
        step("-e over", "exec", "-e", "MARK=2", "${PID}", "sh", "-c", 'echo "<$MARK>"'),
        step("-e invalid", "exec", "-e", "1=2", "${PID}", "true"),
        step("cwd", "exec", "${PID}", "pwd"),
        step("who", "exec", "${PID}", "sh", "-c", _WHO),
        step("status", "exec", "${PID}", "sh", "-c", "exit 6"),
        step("not found", "exec", "${PID}", "nosuch"),
        step("not executable", "exec", "${PID}", "/etc/app"),
        step("stdin", "exec", "${PID}", "cat", answer="text\n"),
        step("same root", "exec", "${PID}", "ls", "/etc/app"),
        step("-- and dashes", "exec", "--", "${PID}", "echo", "-e", "x"),
        step("no such process", "exec", "4194304", "true"),
        step("no number", "exec", "nosuch", "true"),
        step("process of no container", "exec", "1", "true"),
        step("a second start", "start", "app", "echo", "second"),
        step("remove it meanwhile", "remove", "-f", "nosuch"),
        step("export it meanwhile", "export", "-o", "x.sqsh", "app"),
    ),
    containers=_APP,
)  # fmt: skip

SCENARIOS = (
    COMMANDS, IDENTITY, ENVIRONMENT, MOUNTS, NAMESPACES, CONFIGURATION, USER_FILES, EXEC,
)  # fmt: skip
