"""What runs when a bundle is started: unpack the container, then start it. Not imported here.

This file's text is put into bundles and runs under whatever Python (3.8 or newer) their users have,
with nothing but the standard library; the start itself is done by the modules that the archive
brings in `.enroot/lib/python`. Names in the archive are not trusted: nothing is written outside the
folder that it is unpacked to.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import sys
import tarfile
import tempfile
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO

    Options = dict[str, Any]
    Manifest = dict[str, Any]

USAGE = """\
Usage: {program} [options] [--] [COMMAND] [ARG...]
{description}
Options:
  -i, --info           Show what this program is made of
  -k, --keep           Keep the container in the target folder
  -q, --quiet          Show no progress
  -v, --verify         Check whether this machine can run it
  -x, --extract        Unpack to the target folder and end

  -c, --conf CONFIG    Configuration script to run before the container starts
  -e, --env KEY[=VAL]  Variable for the container
  -m, --mount FSTAB    Mount from the host, its fields joined with colons
      --rc SCRIPT      Command script to run instead of the container's
  -r, --root           Be root inside the container
  -w, --rw             Make the container's root filesystem writable
"""

FLAGS = {
    "-i": "info", "--info": "info", "-k": "keep", "--keep": "keep", "-q": "quiet",
    "--quiet": "quiet", "-v": "verify", "--verify": "verify", "-x": "extract",
    "--extract": "extract", "-r": "root", "--root": "root", "-w": "writable", "--rw": "writable",
    "-h": "help", "--help": "help",
}  # fmt: skip
VALUES = {
    "-c": "conf", "--conf": "conf", "-e": "environ", "--env": "environ", "-m": "mounts",
    "--mount": "mounts", "--rc": "rc",
}  # fmt: skip
NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC


class BundleError(Exception):
    """The bundle cannot be used; the text says why."""


class UsageError(Exception):
    """The command line is malformed; the text says where."""


def main(program: str, manifest_text: bytes, payload: int, words: Sequence[str]) -> int:
    """Run the bundle `program`, whose archive begins at byte `payload`; returns an exit status."""
    try:
        manifest = json.loads(manifest_text)
        try:
            options, command = parse(words)
        except UsageError as error:
            print(usage(program, manifest), end="")
            print(f"[ERROR] {error}", file=sys.stderr)
            return 1
        return run(program, manifest, payload, options, command)
    except (BundleError, OSError, tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        print(f"[ERROR] {program}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parse(words: Sequence[str]) -> tuple[Options, list[str]]:
    """Cut the command line into options and the container's command. Raises UsageError."""
    options: Options = {"environ": [], "mounts": []}
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            at -= 1
            break
        name, equals, value = word.partition("=")
        if word in FLAGS:
            options[FLAGS[word]] = True
            continue
        if name not in VALUES or (equals and not name.startswith("--")):
            raise UsageError("No such option: " + word)
        if not equals:
            value, at = (words[at] if at < len(words) else ""), at + 1
        if not value:
            raise UsageError("Missing value: " + name)
        key = VALUES[name]
        if key in ("environ", "mounts"):
            options[key].append(value)
        else:
            options[key] = value
    return options, list(words[at:])


def usage(program: str, manifest: Manifest) -> str:
    """Return the usage text."""
    description = manifest["description"]
    text = "\n" + description + "\n" if description else ""
    return USAGE.format(program=os.path.basename(program), description=text)


def run(
    program: str, manifest: Manifest, payload: int, options: Options, command: Sequence[str]
) -> int:
    """Do what the options say."""
    if "help" in options:
        print(usage(program, manifest), end="")
        return 0
    if "info" in options:
        return show_info(manifest)
    if "verify" in options:
        return verify()
    if "extract" in options and command:
        raise BundleError("--extract runs nothing, and unpacks to " + target_path(manifest))
    kept = "keep" in options or "extract" in options
    with open(program, "rb") as file:
        file.seek(payload)
        rootfs = target_folder(manifest) if kept else temporary_folder()
        try:
            unpack(file, rootfs, manifest, quiet="quiet" in options)
        except BaseException:
            remove(rootfs)
            raise
    if "extract" in options:
        return 0
    if kept:
        return start(rootfs, options, command)
    return start_and_remove(rootfs, options, command)


def show_info(manifest: Manifest) -> int:
    """Print what the bundle is made of."""
    rows = [
        ("Checksum", manifest["checksum"]),
        ("Compression", manifest["compression"]),
        ("Description", manifest["description"] or "none"),
        ("Runtime version", manifest["version"]),
        ("Target directory", manifest["target"]),
        ("Architecture", manifest["architecture"]),
        ("Uncompressed size", "{} KB".format((manifest["size"] + 1023) // 1024)),
    ]
    for name, value in rows:
        print(f"{name}: {value}")
    return 0


def verify() -> int:
    """Try what a start needs, and print the outcome; returns 1 if something is missing."""
    print("Python: " + sys.version.split()[0])
    pid = os.fork()
    if pid == 0:
        import ctypes

        # CLONE_NEWUSER | CLONE_NEWNS, in a child that does nothing else.
        libc = ctypes.CDLL(None, use_errno=True)
        os._exit(ctypes.get_errno() if libc.unshare(0x10000000 | 0x00020000) else 0)
    number = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    if number:
        print("User namespaces: " + os.strerror(number))
        print("    # sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone and")
        print("    # kernel.apparmor_restrict_unprivileged_userns decide about them")
        return 1
    print("User namespaces: allowed")
    return 0


def target_path(manifest: Manifest) -> str:
    """Return the folder that --keep and --extract unpack to."""
    path: str = os.path.abspath(manifest["target"])
    return path


def target_folder(manifest: Manifest) -> str:
    """Make the folder that --keep unpacks to."""
    path = target_path(manifest)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        raise BundleError("File already exists: " + path) from None
    except OSError as error:
        what = "Cannot make {}: {} (go to a folder that you can write to)"
        raise BundleError(what.format(path, error.strerror)) from None
    return path


def temporary_folder() -> str:
    folder = os.environ.get("ENROOT_TEMP_PATH") or os.environ.get("TMPDIR") or "/tmp"
    return tempfile.mkdtemp(prefix="bundle-", dir=folder)


def unpack(file: BinaryIO, rootfs: str, manifest: Manifest, *, quiet: bool) -> None:
    """Unpack the archive that `file` stands at into the empty folder `rootfs`."""
    system = os.statvfs(rootfs)
    free = system.f_bavail * system.f_frsize
    if system.f_blocks and free < manifest["size"]:
        raise BundleError(
            "Not enough space in {}: {} bytes needed, {} free (ENROOT_TEMP_PATH names another "
            "folder)".format(rootfs, manifest["size"], free)
        )
    progress = None if quiet or not sys.stderr.isatty() else manifest["size"]
    done = 0
    folders: list[tuple[str, int]] = []
    # Read to its end, where gzip compares the sum of all bytes: tarfile's own reader does not.
    unzipped = gzip.GzipFile(fileobj=file)
    with tarfile.open(fileobj=unzipped, mode="r|") as archive:
        for member in archive:
            place(archive, member, rootfs, folders)
            done += member.size
            if progress:
                share = min(100, done * 100 // progress)
                sys.stderr.write(f"\rExtracting {share:3d} %")
        while unzipped.read(1 << 20):
            pass
    if progress:
        sys.stderr.write("\rExtracting 100 %\n")
    # Deepest first, and only now: what lies in a folder could not be written into a closed one.
    for path, mode in reversed(folders):
        os.chmod(path, mode)


def place(
    archive: tarfile.TarFile, member: tarfile.TarInfo, rootfs: str, folders: list[tuple[str, int]]
) -> None:
    """Write one member of the archive beneath `rootfs`."""
    parent, name = parent_folder(rootfs, member.name)
    try:
        if member.isdir():
            os.mkdir(name, 0o700, dir_fd=parent)
            # Owners get what they need to read, enter and remove: other bits stay as they are.
            folders.append((os.path.join(rootfs, member.name), stat.S_IMODE(member.mode) | 0o700))
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            source, source_name = parent_folder(rootfs, member.linkname)
            try:
                os.link(source_name, name, src_dir_fd=source, dst_dir_fd=parent,
                        follow_symlinks=False)  # fmt: skip
            finally:
                os.close(source)
        elif member.isfifo():
            os.mkfifo(name, kept_mode(member), dir_fd=parent)
        elif member.isreg():
            write_file(archive, member, parent, name)
    finally:
        os.close(parent)


def write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
    """Write a regular file, with its attributes, mode and time."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600, dir_fd=parent)
    with os.fdopen(fd, "wb") as target:
        content = archive.extractfile(member)
        assert content is not None
        for chunk in iter(lambda: content.read(1 << 20), b""):
            target.write(chunk)
        target.flush()
        for key, value in member.pax_headers.items():
            if key.startswith("SCHILY.xattr.user."):
                try:
                    os.setxattr(fd, key[len("SCHILY.xattr."):], os.fsencode(value))  # fmt: skip
                except (OSError, AttributeError):
                    # A file system without user attributes, or a Python without calls for them:
                    # the file is good all the same.
                    pass
        os.fchmod(fd, kept_mode(member) | 0o400)
        os.utime(fd, (member.mtime, member.mtime))


def kept_mode(member: tarfile.TarInfo) -> int:
    """Return a file's permissions: an ordinary user's lend his identity to nobody."""
    mode = stat.S_IMODE(member.mode)
    return mode if os.geteuid() == 0 else mode & ~(stat.S_ISUID | stat.S_ISGID)


def parent_folder(rootfs: str, path: str) -> tuple[int, str]:
    """Return a descriptor of the folder that `path` lies in, and its name; follows no link."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or path.startswith("/"):
        raise BundleError(f"Damaged bundle: a file named {path!r}")
    fd = os.open(rootfs, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW)
    for part in parts[:-1]:
        try:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd, parts[-1]


def start(rootfs: str, options: Options, command: Sequence[str]) -> int:
    """Become the container; returns only if that fails."""
    own = os.path.join(rootfs, ".enroot")
    sys.path.insert(0, os.path.join(own, "lib", "python"))
    os.environ.update(
        ENROOT_LIBRARY_PATH=os.path.join(own, "lib"),
        ENROOT_SYSCONF_PATH=os.path.join(own, "etc", "system"),
        ENROOT_CONFIG_PATH=os.path.join(own, "etc", "user"),
        ENROOT_DATA_PATH=os.path.dirname(rootfs),
        PATH=os.path.join(own, "bin") + ":" + os.environ.get("PATH", "/usr/bin:/bin"),
    )
    from enroot_py.errors import EnrootError
    from enroot_py.log import format_line, set_sink
    from enroot_py.operations.start import start as start_container
    from enroot_py.plan.spec import StartSpec

    colour = sys.stderr.isatty()
    set_sink(lambda level, text: print(format_line(level, text, colour=colour), file=sys.stderr))
    spec = StartSpec(
        target=os.path.basename(rootfs),
        command=tuple(command),
        root="root" in options,
        writable="writable" in options,
        mounts=tuple(options["mounts"]),
        environ=tuple(options["environ"]),
        rc=options.get("rc", ""),
        conf=options.get("conf", ""),
    )
    try:
        return start_container(spec)
    except EnrootError as error:
        print(format_line("ERROR", str(error), colour=colour), file=sys.stderr)
        if error.hint:
            print("        " + error.hint, file=sys.stderr)
        return error.exit_code


def start_and_remove(rootfs: str, options: Options, command: Sequence[str]) -> int:
    """Start the container in a child, and remove it when the child is gone."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = start(rootfs, options, command)
        finally:
            # The child must not return into the caller's code, whatever it was that went wrong.
            kind, error, trace = sys.exc_info()
            if kind is not None and error is not None:
                sys.excepthook(kind, error, trace)
            sys.stderr.flush()
            os._exit(status)
    # The terminal sends its signals to the child as well; what is sent to this process alone is
    # passed on. It ends when the child does.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: os.kill(pid, received))
    try:
        status = os.waitpid(pid, 0)[1]
    finally:
        remove(rootfs)
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def remove(folder: str) -> None:
    """Remove a folder and all in it, whatever modes its directories have."""
    pending = [folder]
    while pending:
        path = pending.pop()
        os.chmod(path, 0o700)
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in folders:
            below = os.path.join(path, name)
            (os.unlink if os.path.islink(below) else os.rmdir)(below)
    os.rmdir(folder)
