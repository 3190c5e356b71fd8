"""The keeper: does for the plugin and the launchers what a step's container needs, and keeps it.

Descriptors: 3 the request, 4 the answer, 5 (start) the line to whoever waits; 1 and 2 a log. The
protocol is in spank_shim/README.md. With `start` this process keeps the container alive until it is
told that all tasks have joined, hence its name.
"""

from __future__ import annotations

import os

from enroot_py import EnrootError, ExistsError, UsageError, set_log_sink
from pyxis_py.protocol.news import News, news_of_step
from pyxis_py.protocol.records import Answer, encode_answer, encode_records
from pyxis_py.protocol.request import Log, Request, describe, ignored_lines, read_log
from pyxis_py.runtime_folder import find_folder, scratch_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable

    from enroot_py import Settings
    from pyxis_py.step.container import Image, Started
    from pyxis_py.step.plan import StepPlan
else:
    import _signal  # `signal` itself imports enum

REQUEST_FD, ANSWER_FD, LINE_FD = 3, 4, 5


def start(request: Request, log: Log) -> tuple[Answer, Started | None]:
    """Do what a step needs before its tasks can join.

    Returns:
        The answer, and the container that is to be kept until the tasks have.
    """
    arguments = request.arguments
    if not arguments.enabled:
        # The plugin has said so where the step was submitted; launchers in Python only ask here.
        lines = ignored_lines(arguments) if request.records.first("joins") else []
        return Answer("none", (), tuple(lines), ()), None
    news = news_of_step(request.job, request.tell)
    log.listener = news.detail
    try:
        return _start(request, log, news)
    finally:
        news.close()


def _start(request: Request, log: Log, news: News) -> tuple[Answer, Started | None]:
    from pyxis_py.step.container import start_container, stop_container, target_of

    settings = request.settings()
    folder = find_folder(request.config.runtime_path, request.job.environ)
    plan = _plan(request, settings)
    plan = plan._replace(messages=plan.messages + _look_at_place(plan.save))
    scratch = ""
    if request.config.cache_policy == "never" and plan.origin == "uri":
        scratch = scratch_folder(folder, request.job)
    try:
        plan, image = _prepare(plan, request, settings, news, scratch)
    except EnrootError:
        # What was unpacked so far is gone; an importer may hold something, the scratch folder too.
        _undo(plan._replace(temporary=False), request, settings, scratch)
        raise
    logs: list[str] = []
    environ = request.job.environ
    kept = tuple(f"{name}={environ[name]}" for name in plan.keep_environ if environ.get(name))
    news.stage("starting the container: mounts, hooks and entrypoint")
    try:
        started = start_container(
            plan, target_of(plan, image), settings, folder=folder, environ=kept
        )
    except EnrootError:
        _undo(plan, request, settings, scratch)
        raise
    finally:
        if image is not None:
            image.close()
    if plan.entrypoint and plan.entrypoint_log:
        logs += read_log().splitlines()
    try:
        answer = _answer(plan, started, request, scratch)
    except EnrootError:
        stop_container(started)
        _undo(plan, request, settings, scratch)
        raise
    return answer._replace(logs=(*plan.messages, *logs), infos=tuple(log.warnings)), started


def _look_at_place(path: str) -> tuple[str, ...]:
    """Return a line if saving can only fail as things stand: hours may pass until then.

    Raises:
        UsageError: for a folder.
    """
    if not path:
        return ()
    if os.path.isdir(path):
        raise UsageError(f"--container-save: a folder, not a file: {path}")
    folder = os.path.dirname(path)
    if os.access(folder, os.W_OK | os.X_OK):
        return ()
    why = "cannot be written to" if os.path.isdir(folder) else "is not there"
    return (f"--container-save: {folder} {why} yet; it has to be when the step ends",)


def _plan(request: Request, settings: Settings) -> StepPlan:
    from pyxis_py.step.plan import ABSENT, container_name, plan_step

    arguments, config, job = request.arguments, request.config, request.job
    existing, maker = ABSENT, 0
    if arguments.name:
        existing, maker = _state_of(container_name(arguments, config, job), settings)
    return plan_step(arguments, config, job, existing=existing, maker=maker)


def _state_of(name: str, settings: Settings) -> tuple[int, int]:
    """Return a container's state, and the job that made it."""
    from enroot_py import containers
    from pyxis_py.step.maker import read_maker

    for status in containers(settings=settings):
        if status.name == name:
            pid = status.processes[0].pid if status.processes else 0
            return pid, read_maker(status.path)
    return -1, 0


def _prepare(
    plan: StepPlan, request: Request, settings: Settings, news: News, scratch: str
) -> tuple[StepPlan, Image | None]:
    """Get the image, make the container; return the plan as it then is, and the image."""
    from pyxis_py.step.container import load_container, make_container, needs_image, obtain_image

    if _wants_news(plan, request):
        request.tell(f"importing image: {plan.image}")
    image = None
    if needs_image(plan):
        news.stage(f"importing {plan.image}")
        image = obtain_image(plan, request.config, settings, news, scratch=scratch)
    if plan.action != "create":
        return plan, image
    news.stage(f"unpacking {plan.image} into container {plan.container}")
    try:
        if image is None:
            load_container(plan, settings)
        else:
            make_container(plan, image, settings)
        if not plan.temporary:
            from pyxis_py.step.maker import write_maker

            write_maker(os.path.join(settings.data_path, plan.container), request.job.job)
    except ExistsError:
        # Another step made it since we looked; with `create` that is an error, as before.
        if plan.temporary or request.arguments.name_mode in ("create", "exec"):
            raise
        plan = _plan(request, settings)
    finally:
        if image is not None:
            image.close()
    return plan, None


def _wants_news(plan: StepPlan, request: Request) -> bool:
    # A single task may be somebody at a terminal; hundreds of tasks would all say the same.
    return plan.origin in ("uri", "importer") and request.job.tasks <= 1


def _tell(text: str) -> None:
    """Send the user a line at once, through whoever waits on the other end of the line."""
    try:
        os.write(LINE_FD, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # nobody waits any more


def _undo(plan: StepPlan, request: Request, settings: Settings, scratch: str) -> None:
    """A start that failed leaves nothing temporary behind."""
    from pyxis_py.step.cleanup import StepState, finish

    importer = request.config.importer if plan.origin == "importer" else ""
    state = StepState(plan.container, plan.temporary, "", importer, scratch)
    if state.has_work:
        finish(state, settings, complete=False)


def _answer(plan: StepPlan, started: Started, request: Request, scratch: str) -> Answer:
    from enroot_py import NamespaceError
    from pyxis_py.protocol.task_environ import plan_task_environ
    from pyxis_py.step.container import differing_namespaces

    joined = plan.pid or started.pid
    join = differing_namespaces(joined)
    for name in plan.unshare:
        if name not in join:
            raise NamespaceError(
                f"--container-unshare={name}: the container has no {name} namespace of its own",
                hint="it was started without one by another step",
            )
    if request.job.privileged:
        join = tuple(name for name in join if name != "user")
    overrides = request.expand_overrides(started.environ)
    importer = request.config.importer if plan.origin == "importer" else ""
    # The fields of cleanup.StepState, whose module is not for the start path.
    state = (plan.container, plan.temporary, plan.save, importer, scratch)
    return Answer(
        "ok", (), (), (),
        pid=joined,
        join=join,
        # Relative ones count from the root, where a process is that has joined.
        cwd=plan.workdir or started.cwd,
        edits=plan_task_environ(
            started.environ, request.job.environ, plan.keep_environ, overrides=overrides
        ),
        seccomp=not request.job.privileged,
        state=repr(state) if any(state[1:]) else "",
    )  # fmt: skip


def _serve_start(data: bytes, log: Log) -> None:
    request, started, line_fd, joins = None, None, LINE_FD, 1
    try:
        request = Request(data, tell=_tell)
        joins = request.records.number("joins", 1)
        if path := request.records.first("line"):
            # Open for writing too: such a line has no end before all tasks have come.
            line_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        answer, started = start(request, log)
    except EnrootError as error:
        answer = Answer("error", describe(error, log, request), (), ())
    except OSError as error:
        answer = Answer("error", (f"{error.strerror}: {error.filename}",), (), ())
    _write_answer(encode_answer(answer))
    if started is None:
        os.write(LINE_FD, b"\0")
        return
    lingers = request is not None and bool(request.records.first("linger"))
    mounts_fd = _hold_mounts(started.pid) if lingers else -1
    _keep(started, line_fd, joins)
    if lingers:
        _linger(mounts_fd)


def _hold_mounts(pid: int) -> int:
    try:
        return os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1  # it was killed: tasks will say so


def _keep(started: Started, line_fd: int, joins: int) -> None:
    """Keep the container until all tasks have joined, or nobody is left who could."""
    from pyxis_py.step.container import stop_container

    # `srun --pty`: the first task may end, and its terminal hang up, before the others have joined.
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)
    try:
        os.write(LINE_FD, b"\0")
        while joins > 0 and (bytes_read := os.read(line_fd, joins)):
            joins -= len(bytes_read)
    except OSError:
        pass  # whoever waited is gone, and so is the step
    finally:
        stop_container(started)


def _linger(mounts_fd: int) -> None:
    """Stay until the line's end, in a program of one page instead of an interpreter.

    slurmstepd reaps this process. If one that is no task ends before a task does, slurmstepd sleeps
    for 100 ms before it looks again (Slurm 22.05, slurmstepd/mgr.c: _wait_for_all_tasks). That goes
    for an image's server as well, which ends with the mounts: they are held until then.
    """
    from pyxis_py.step.container import memory_program
    from pyxis_py.step.pause import waiting_program

    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_IGN)
    try:
        fd = memory_program("keeper", waiting_program(os.uname().machine))
        if mounts_fd >= 0:
            os.dup2(mounts_fd, REQUEST_FD)
        os.set_inheritable(LINE_FD, True)
        os.closerange(0, REQUEST_FD)
        os.close(ANSWER_FD)
        os.closerange(LINE_FD + 1, fd)
        os.closerange(fd + 1, 1 << 20)
        os.execve(f"/proc/self/fd/{fd}", ["pyxis-keeper"], {})
    except OSError:
        # Where memory may not be executed nothing would have started either.
        return


def _write_answer(data: bytes) -> None:
    while data:
        data = data[os.write(ANSWER_FD, data) :]


def _serve_simple(
    verb: Callable[[Request], tuple[list[tuple[str, str]], list[str]]], data: bytes, log: Log
) -> None:
    """Serve a verb that returns answer records and lines about what failed."""
    request = None
    try:
        request = Request(data, tell=_tell)
        pairs, failed = verb(request)
    except EnrootError as error:
        pairs, failed = [], list(describe(error, log, request))
    status = "error" if failed else "ok"
    errors = [("error", line) for line in failed]
    _write_answer(encode_records([("status", status), *errors, *pairs], end=True))


def _read_request() -> bytes:
    pieces = []
    while piece := os.read(REQUEST_FD, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def main(verb: str) -> int:
    """Serve one request; the answer says how it went, the status only that there is one."""
    log = Log()
    set_log_sink(log)
    data = _read_request()
    if verb == "start":
        _serve_start(data, log)
        return 0
    from pyxis_py.step.verbs import VERBS

    _serve_simple(VERBS[verb], data, log)
    return 0
