"""What the keeper does besides starting: ends, submissions, and root's part. See keeper.py."""

from __future__ import annotations

import os

from enroot_py import (
    EnrootError,
    NotFoundError,
    PlatformError,
    RegistryError,
    UsageError,
    load_settings,
    remove_unfinished,
)
from pyxis_py.protocol.news import news_of_step
from pyxis_py.protocol.request import Request, ignored_lines
from pyxis_py.runtime_folder import (
    find_folder,
    folders_without_site,
    make_base,
    make_user_folder,
    scratch_folder,
    working_folder,
)
from pyxis_py.step.plan import PIN, URI, add_pin, container_name, locate_image

_WITHOUT_DIGEST = ("oras://", "dockerd://", "podman://")
"""Schemes whose images the nodes find by name; the registry's answer is for others."""

Outcome = tuple[list[tuple[str, str]], list[str]]
"""Answer records, and lines about what failed."""


def finish_step(request: Request) -> Outcome:
    """The last task of a step on this node has ended."""
    from pyxis_py.step.cleanup import finish, parse_state

    state = parse_state(request.records.first("state"))
    complete = request.records.number("started") >= request.job.local_tasks
    news = news_of_step(request.job, request.tell)
    if state.save and complete:
        news.stage(f"saving container {state.container} to {state.save}")
    try:
        done, failed = finish(state, request.settings(), complete=complete)
    finally:
        news.close()
    return [("log", line) for line in done], failed


def abandon_step(request: Request) -> Outcome:
    """A start was killed: remove what it may have left."""
    from pyxis_py.step.cleanup import StepState, finish

    arguments, config, job = request.arguments, request.config, request.job
    settings = request.settings()
    container = "" if arguments.name else container_name(arguments, config, job)
    importer = config.importer if arguments.image[:1] not in ("", "/", ".") else ""
    scratch = ""
    if config.cache_policy == "never":
        scratch = scratch_folder(find_folder(config.runtime_path, job.environ), job)
    state = StepState(container, bool(container), "", importer, scratch)
    done, failed = finish(state, settings, complete=False)
    remove_unfinished(settings=settings)
    return [("log", line) for line in done], failed


def submit(request: Request) -> Outcome:
    """A command line was read at srun, sbatch or salloc: check it, and find the image's digest.

    What only the nodes can know (files, containers) is not checked here.
    """
    pairs, failed = _check(request)
    if request.records.first("context") == "srun" and ":" in request.records.all("command"):
        pairs += _groups(request)
    return pairs, failed


def _groups(request: Request) -> list[tuple[str, str]]:
    """Say which component of a heterogeneous step goes where, if that can be known."""
    from pyxis_py.command_lines.components import split_components
    from pyxis_py.command_lines.slurm_table import read_options
    from pyxis_py.protocol.components import GROUPS, find_groups

    words = request.records.all("command")[1:]
    try:
        components = split_components(words, read_options("srun"))
        groups = find_groups(components, request.job.environ)
    except UsageError:
        return []  # an option of srun's that only srun knows: components must be alike then
    return [("setenv", f"{GROUPS}={groups}")] if groups else []


def _check(request: Request) -> Outcome:
    arguments = request.arguments
    if not arguments.enabled:
        return [("log", line) for line in ignored_lines(arguments)], []
    if not arguments.image:
        return [], []
    hint = _cut_reference(arguments.image) if request.records.first("context") == "sbatch" else ""
    if hint:
        raise UsageError(
            f"--container-image={arguments.image} is a registry, not an image", hint=hint
        )
    job = request.job._replace(cwd=request.job.cwd or working_folder())
    origin, uri = locate_image(arguments, request.config, job)
    if origin != URI or uri.startswith(_WITHOUT_DIGEST):
        if arguments.digest == "print":
            return [("log", f"{arguments.image} is no image of a registry: it has no digest")], []
        return [], []
    return _resolve(request, uri)


def _cut_reference(image: str) -> str:
    """Tell what to do if all of a reference is its registry: sbatch ends a line's words at #."""
    name, _, port = image.partition(":")
    if "/" in image or "#" in image or "." not in name.strip("."):
        return ""
    if port.isdecimal() or name.endswith((".io", ".com")):
        return "in an #SBATCH line # begins a comment: write REGISTRY\\#IMAGE"
    return ""


def _resolve(request: Request, uri: str) -> Outcome:
    from pyxis_py.site_packages import add_libraries

    add_libraries()
    from enroot_py import digest

    known = uri.rpartition("@")[2]
    news = news_of_step(request.job, request.tell)
    news.stage(f"asking the registry for the digest of {request.arguments.image}")
    try:
        found = known if known.startswith("sha256:") else digest(uri, settings=request.settings())
    except (NotFoundError, PlatformError):
        raise
    except RegistryError as error:
        # The nodes may reach a registry, or have credentials, that this host has not.
        line = f"the digest of {request.arguments.image} is not known here: {error}"
        return [("log" if request.arguments.digest == "print" else "info", line)], []
    finally:
        news.close()
    pinned = add_pin(request.job.environ.get(PIN, ""), request.arguments.image, found)
    pairs = [("setenv", f"{PIN}={pinned}")]
    if request.arguments.digest == "print":
        pairs.append(("log", f"{request.arguments.image} is {found}"))
    return pairs, []


def prepare_user(request: Request) -> Outcome:
    """As root: make the folder that the user's steps use."""
    base = request.config.runtime_path
    try:
        make_base(base)
        make_user_folder(base, request.job.uid, request.job.gid)
    except OSError as error:
        return [], [f"cannot make the runtime folder {base}: {error.strerror}"]
    return [], []


def prepare_node(request: Request) -> Outcome:
    """As root, when slurmd starts: make the folder that holds the users' folders."""
    try:
        make_base(request.config.runtime_path)
    except OSError as error:
        return [], [f"cannot make {request.config.runtime_path}: {error.strerror}"]
    return [], []


def end_job(request: Request) -> Outcome:
    """As root, when a job has ended on this node: remove what it left, as its user."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_fd)
            failed = _end_job_as_user(request)
            os.write(write_fd, "\n".join(failed).encode("utf-8", "replace"))
            status = 0
        finally:
            os._exit(status)
    os.close(write_fd)
    with open(read_fd, "rb") as file:
        failed = file.read().decode().splitlines()
    if os.waitpid(pid, 0)[1]:
        failed.append(f"cannot clean up after job {request.job.job}")
    return [], failed


def _end_job_as_user(request: Request) -> list[str]:
    import pwd

    from pyxis_py.step.cleanup import clean_job

    job, config = request.job, request.config
    try:
        user = pwd.getpwuid(job.uid)
        name, home = user.pw_name, user.pw_dir
        groups = os.getgrouplist(name, job.gid)
    except KeyError:
        name, home, groups = str(job.uid), "/", [job.gid]
    if os.geteuid() == 0:
        os.setgroups(groups)
        os.setresgid(job.gid, job.gid, job.gid)
        os.setresuid(job.uid, job.uid, job.uid)
    path = os.environ.get("PATH", os.defpath)
    # What the site's enroot.conf may name folders after.
    environ = {"PATH": path, "HOME": home, "USER": name, "LOGNAME": name}
    environ["PYXIS_RUNTIME_PATH"] = config.runtime_path
    folders = [os.path.join(config.runtime_path, str(job.uid)), *folders_without_site(job.uid)]
    try:
        settings = load_settings(environ)
        named = config.container_scope == "job"
        return clean_job(job.job, settings, folders=folders, named=named)
    except EnrootError as error:
        return [str(error)]


VERBS = {
    "finish": finish_step,
    "abandon": abandon_step,
    "local": submit,
    "prepare": prepare_user,
    "init": prepare_node,
    "epilog": end_job,
}
