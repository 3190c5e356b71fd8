"""Decide what a step's container is: new, kept or running; from where; with what. Pure.

Source: pyxis 0.24 pyxis_slurmstepd.c, slurm_spank_user_init(), enroot_container_create() and
enroot_create_start_config().
"""

from __future__ import annotations

from enroot_py import ExistsError, Mount, NotFoundError, UsageError, is_mount_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from pyxis_py.args import Arguments, MountEntry
    from pyxis_py.job import JobFacts
    from pyxis_py.plugin_config import PluginConfig
else:
    from enroot_py import NamedTuple

ABSENT, IDLE = -1, 0
"""States of a named container; any other number is the process that stands for a running one."""

JOIN, REUSE, CREATE, DIRECT = "join", "reuse", "create", "direct"
"""What to do: enter a running container; start a kept one; unpack the image into a container and
start that; start straight from the image, which leaves nothing behind."""

NO_IMAGE, FILE, URI, IMPORTER = "", "file", "uri", "importer"
"""Where the image comes from: none is needed; a squashfs file; enroot's import; another program."""

PIN = "SLURM_PYXIS_PINNED_IMAGE"
"""Variable that carries "IMAGE DIGEST …" from the submission to the nodes; a name that begins with
SLURM gets there whatever --export says."""

_MOST_PINS = 16

_SUFFIXES = (".sqsh", ".squashfs")
_SQUASHFS_FLAGS = ("squashfs", "sqsh")
"""Either says that what is in the source, a squashfs file, is meant, not the file."""

_SCRIPT_OPTIONS = ("x-create=file", "bind", "ro", "nosuid", "nodev", "private")


class StepPlan(NamedTuple):
    """Everything that is decided about a step's container.

    Attributes:
        action: JOIN, REUSE, CREATE or DIRECT.
        container: name of the container in enroot's data folder; "" with DIRECT.
        temporary: the container is to be removed when the step ends.
        pid: with JOIN: a process of the running container.
        origin: NO_IMAGE, FILE, URI or IMPORTER.
        image: host path of a squashfs file, or a URI with its scheme.
        load: unpack straight from the registry, without an image in between.
        mounts: mounts for the container, in order.
        keep_environ: variables of the job that win over those of the image.
        workdir: where tasks start, inside the container; "" for the image's own.
        save: absolute host path to save the container to; "" for not at all.
        entrypoint: whether the image's entrypoint runs.
        entrypoint_log: whether to show what it prints.
        unshare: kinds of namespaces that the container must have of its own.
        gpus, devices: as in enroot_py.StartSpec.
        print_digest: tell which image it is.
        import_timeout: seconds for getting the image; 0 for no limit.
        messages: lines for the user, in order.
    """

    action: str
    container: str
    temporary: bool
    pid: int
    origin: str
    image: str
    load: bool
    mounts: tuple[Mount, ...]
    keep_environ: tuple[str, ...]
    workdir: str
    save: str
    entrypoint: bool
    entrypoint_log: bool
    unshare: tuple[str, ...]
    gpus: str
    devices: tuple[str, ...]
    print_digest: bool
    import_timeout: float
    messages: tuple[str, ...] = ()


def container_name(arguments: Arguments, config: PluginConfig, job: JobFacts) -> str:
    """Return what the step's container is called in enroot's data folder.

    The prefix keeps Slurm's containers apart from those that users make by hand.
    """
    scope = f"{job.job}_" if config.container_scope == "job" else ""
    return f"pyxis_{scope}{arguments.name or f'{job.job}.{job.step}'}"


def belongs_to_job(name: str, job: int, *, named: bool) -> bool:
    """Tell whether a container is one of a job's.

    Args:
        name: as in enroot's data folder.
        job: job id.
        named: containers of job scope count; without it only temporary ones do.
    """
    prefix = f"pyxis_{job}"
    if named and name.startswith(f"{prefix}_"):
        return True
    for temporary in (f"{prefix}.", f"{prefix}_{job}."):
        step = name.removeprefix(temporary)
        if step != name and step.isascii() and step.isdecimal():
            return True
    return False


def plan_step(
    arguments: Arguments,
    config: PluginConfig,
    job: JobFacts,
    *,
    existing: int = ABSENT,
    maker: int = 0,
) -> StepPlan:
    """Decide what happens for a step.

    Args:
        arguments: what was asked; `enabled` is true.
        config: the site's settings.
        job: the step.
        existing: the state of the container that `container_name` names.
        maker: the job that made that container; 0 if it is not known.

    Raises:
        ExistsError, NotFoundError: if its state is not the one that was asked for.
        UsageError: if what was asked cannot be.
    """
    state = _check_state(arguments, existing, container_name(arguments, config, job))
    if state != ABSENT:
        origin, image = NO_IMAGE, ""
    else:
        origin, image = locate_image(arguments, config, job)
    temporary = not arguments.name
    if state != ABSENT:
        action = REUSE if state == IDLE else JOIN
    elif temporary and config.use_squashfuse and not arguments.save and not config.use_enroot_load:
        action = DIRECT
    else:
        action = CREATE
    entrypoint = arguments.entrypoint
    return StepPlan(
        action=action,
        container="" if action == DIRECT else container_name(arguments, config, job),
        temporary=temporary and action == CREATE,
        pid=max(state, 0),
        origin=origin,
        image=image,
        load=config.use_enroot_load and origin == URI and not image.startswith("dockerd://"),
        mounts=() if action == JOIN else _plan_mounts(arguments, job),
        keep_environ=arguments.env,
        workdir=arguments.workdir,
        save=_absolute(arguments.save, job, flag="--container-save"),
        entrypoint=config.execute_entrypoint if entrypoint is None else entrypoint,
        entrypoint_log=arguments.entrypoint_log,
        unshare=arguments.unshare,
        gpus=arguments.gpus,
        devices=arguments.devices,
        print_digest=arguments.digest == "print",
        import_timeout=arguments.import_timeout,
        messages=_messages(arguments, action, job, maker),
    )


def _check_state(arguments: Arguments, existing: int, container: str) -> int:
    """Return the state to go by: what `--container-name` asks of the container of that name."""
    name, mode = arguments.name, arguments.name_mode
    if not name:
        return ABSENT
    if mode == "create" and existing != ABSENT:
        raise ExistsError(
            f"--container-name={name}:create: the container exists already",
            hint="`auto` uses it; `enroot remove` removes it",
        )
    if mode == "exec" and existing <= IDLE:
        raise NotFoundError(f"--container-name={name}:exec: the container is not running")
    if existing == ABSENT and not arguments.image:
        raise NotFoundError(
            f"--container-name={name}: there is no such container on this node",
            hint=f"give --container-image to make it; `enroot list` shows it as {container}",
        )
    return IDLE if mode == "no_exec" and existing > IDLE else existing


def locate_image(arguments: Arguments, config: PluginConfig, job: JobFacts) -> tuple[str, str]:
    """Return where the image comes from, and its path or URI.

    A value that begins with a dot or a slash is a file, as in the original; anything else that has
    no scheme is an image of a registry. A name that looks like a file's is asked about, where no
    importer knows better, before a registry is.

    Raises:
        UsageError: if a digest is asked of a file, or is not the one that the reference has; or if
            the name of an image file lacks its `./`.
    """
    image = arguments.image
    if image[:1] in ("/", "."):
        if arguments.digest.startswith("sha256:"):
            raise UsageError(
                f"--container-digest: {image} is a file, not an image of a registry",
                hint="a digest pins images that are pulled",
            )
        return FILE, _absolute(image, job, flag="--container-image")
    if "://" not in image and image.endswith(_SUFFIXES) and not config.importer:
        raise UsageError(
            f"--container-image={image}: an image of a registry, or a file?",
            hint=f"./{image} is the file, docker://{image} is an image of a registry",
        )
    uri = image if "://" in image else f"docker://{image}"
    uri = pin_image(uri, arguments.digest if arguments.digest != "print" else "")
    digest = _pins(job.environ.get(PIN, "")).get(image, "")
    if digest.startswith("sha256:"):
        uri = pin_image(uri, digest)
    return (IMPORTER if config.importer else URI), uri


def _pins(text: str) -> dict[str, str]:
    words = text.split(" ")
    return dict(zip(words[::2], words[1::2], strict=False))


def add_pin(text: str, image: str, digest: str) -> str:
    """Return the value of PIN with one image more: components of a step share one environment."""
    pins = _pins(text)
    pins.pop(image, "")
    pins[image] = digest
    return " ".join(f"{name} {found}" for name, found in list(pins.items())[-_MOST_PINS:])


def pin_image(uri: str, digest: str) -> str:
    """Return `uri` with a digest, which then is the image that is meant, whatever its tag becomes.

    Raises:
        UsageError: if the reference has another digest.
    """
    if not digest or not uri.startswith("docker://"):
        return uri
    _, at, own = uri.rpartition("@")
    if at and own.startswith("sha256:"):
        if own != digest:
            raise UsageError(f"--container-digest: {digest} is not the digest of {uri}")
        return uri
    return f"{uri}@{digest}"


def _absolute(path: str, job: JobFacts, *, flag: str) -> str:
    if not path or path.startswith("/"):
        return path
    if not job.cwd:
        raise UsageError(
            f"{flag}: {path} is relative, and the job's working directory is not known",
            hint="give an absolute path",
        )
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return f"{job.cwd}/{path}" if path not in ("", ".") else job.cwd


def _plan_mounts(arguments: Arguments, job: JobFacts) -> tuple[Mount, ...]:
    mounts = [_plan_mount(entry, job) for entry in arguments.mounts]
    if job.script:
        # A batch script lies in the daemon's spool folder, which no image has.
        target = job.script_target or job.script
        mounts.insert(0, Mount(job.script, target, "none", _SCRIPT_OPTIONS))
    return tuple(mounts)


def _plan_mount(entry: MountEntry, job: JobFacts) -> Mount:
    source, fstype, options = entry.source, "none", entry.options
    if source == "tmpfs":
        fstype = "tmpfs"
    elif source == "umount":
        source = "none"
    else:
        source = _absolute(source, job, flag="--container-mounts")
        if any(flag in options for flag in _SQUASHFS_FLAGS):
            fstype, left_out = "squashfs", (*_SQUASHFS_FLAGS, "x-create=auto", "rbind")
            options = ("x-create=dir", *(word for word in options if word not in left_out))
    return Mount(source, entry.target, fstype, options)


def _messages(arguments: Arguments, action: str, job: JobFacts, maker: int) -> tuple[str, ...]:
    lines = []
    if action in (REUSE, JOIN) and maker not in (0, job.job):
        node = job.environ.get("SLURMD_NODENAME", "this node")
        image = "; --container-image is not unpacked again" if arguments.image else ""
        lines.append(
            f"container {arguments.name} on {node} is one of job {maker}, with what was written"
            f" to it since{image}"
        )
    if action == JOIN and arguments.mounts:
        lines.append("--container-mounts is ignored: the container is running already")
    elif job.environ.get("SLURM_NODEID", "0") == "0":
        lines += [line for entry in arguments.mounts for line in _unknown_flags(entry)]
    return tuple(lines)


def _unknown_flags(entry: MountEntry) -> list[str]:
    """Return a line for each flag that does nothing: one meant to forbid something would not."""
    if entry.source[0] not in "./" or any(flag in entry.options for flag in _SQUASHFS_FLAGS):
        return []
    return [
        f"mount {entry.source}:{entry.target}: {option!r} is no flag of mounts, and has no effect"
        for option in entry.options
        if not is_mount_option(option) and not option.startswith("x-")
    ]


def rc_local_mount(path: str) -> Mount:
    """Return the mount that keeps an image's entrypoint from running.

    An image's command script sources /etc/rc.local before it comes to the entrypoint; `path` is a
    host file with RC_LOCAL in it. The original writes into the container itself, where it stays.
    """
    return Mount(path, "/etc/rc.local", "none", _SCRIPT_OPTIONS)


RC_LOCAL = b'exec "$@"\n'
