"""The longer texts of each command, for usage texts and man pages; rows of `table.py` by name.

Off the start path. Paragraphs are separated by an empty line. Examples are whole shell lines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """What there is to say about a command beyond its row of the table.

    Attributes:
        text: paragraphs.
        terms: a heading, and rows of a word and what it means.
        examples: a shell line, and what it does.
        variables: ENROOT_* settings that change what the command does.
    """

    text: str
    terms: tuple[str, tuple[tuple[str, str], ...]] = ("", ())
    examples: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()


_SOURCES = (
    "Schemes",
    (
        (
            "docker://[USER@][REGISTRY#]IMAGE[:TAG][@DIGEST]",
            "An image in a registry; Docker Hub where none is named. REGISTRY/IMAGE works as well.",
        ),
        ("dockerd://IMAGE[:TAG]", "An image of the Docker daemon."),
        ("podman://IMAGE[:TAG]", "An image of podman's storage."),
        ("oci:PATH[:TAG]", "An image in an OCI layout folder."),
        ("oci-archive:FILE[:TAG]", "An image in an OCI layout packed with tar."),
        ("docker-archive:FILE[:IMAGE]", "An image written by `docker save`."),
        ("tar:FILE, dir:PATH", "A root filesystem, packed with tar or as a folder."),
        ("oras://REGISTRY/NAME[:TAG]", "A single-file artifact of a registry."),
    ),
)

DESCRIPTIONS = {
    "batch": Description(
        "The same as `enroot start --conf CONFIG`, with the root filesystem taken from the line "
        "`#ENROOT_ROOTFS NAME|IMAGE` of CONFIG. Other lines of that kind are settings for this "
        "one start.",
        examples=(("enroot batch train.conf python train.py", "start what train.conf describes"),),
    ),
    "bundle": Description(
        "The program holds the image and what is needed to start it. It runs on machines that "
        "have Python 3.8 or newer and allow user namespaces, and needs no installation there.\n\n"
        "Run the program with --help to see its own options.",
        examples=(("enroot bundle -o tool.run tool.sqsh", "then copy tool.run and run it"),),
        variables=("ENROOT_BUNDLE_ALL", "ENROOT_BUNDLE_CHECKSUM", "ENROOT_FORCE_OVERRIDE"),
    ),
    "create": Description(
        "Unpacks a squashfs image to a folder of ENROOT_DATA_PATH, where `start` finds it by its "
        "name. The files belong to you.",
        examples=(("enroot create --name work ubuntu.sqsh", "make the container `work`"),),
        variables=("ENROOT_DATA_PATH", "ENROOT_MAX_PROCESSORS", "ENROOT_FORCE_OVERRIDE"),
    ),
    "digest": Description(
        "Prints one line, `sha256:` and the hexadecimal digest of the manifest or index that the "
        "reference names. Nothing is downloaded but that.",
        examples=(("enroot digest docker://ubuntu:24.04", "what the tag stands for now"),),
    ),
    "exec": Description(
        "Joins the namespaces of a process in a container and runs COMMAND there, with that "
        "process's environment and working folder.\n\n"
        "A number names a process, as `enroot list --fancy` shows it; a name stands for the one "
        "process group that runs in that container.",
        examples=(
            ("enroot exec 12345 bash", "a shell in the container of process 12345"),
            ("enroot exec work ps", "a command in the container `work`, which is running"),
        ),
    ),
    "export": Description(
        "Packs the root filesystem of a container into a squashfs image. Everything in the image "
        "belongs to root; device files and Enroot's own files are left out.",
        examples=(("enroot export -o mine.sqsh work", "keep the state of `work`"),),
        variables=("ENROOT_SQUASH_OPTIONS", "ENROOT_MAX_PROCESSORS", "ENROOT_FORCE_OVERRIDE"),
    ),
    "import": Description(
        "Fetches the layers that the cache does not hold, verifies them, flattens them and writes "
        "a squashfs image. The same digest and options give the same bytes on every machine.\n\n"
        "Credentials come from the file `.credentials` in ENROOT_CONFIG_PATH.",
        terms=_SOURCES,
        examples=(
            ("enroot import docker://ubuntu:24.04", "write ubuntu+24.04.sqsh"),
            (
                "enroot import -a aarch64 -o t.sqsh docker://nvcr.io#nvidia/pytorch:24.10-py3",
                "another registry, another architecture",
            ),
        ),
        variables=(
            "ENROOT_CACHE_PATH",
            "ENROOT_CONFIG_PATH",
            "ENROOT_TEMP_PATH",
            "ENROOT_SQUASH_OPTIONS",
            "ENROOT_MAX_PROCESSORS",
            "ENROOT_MAX_CONNECTIONS",
            "ENROOT_CONNECT_TIMEOUT",
            "ENROOT_TRANSFER_TIMEOUT",
            "ENROOT_TRANSFER_RETRIES",
            "ENROOT_ALLOW_HTTP",
            "ENROOT_MIRRORS",
        ),
    ),
    "list": Description(
        "One name a line. With --fancy a table: NAME, PID, COMM, STATE, STARTED, TIME, MNTNS, "
        "USERNS and COMMAND of the first process of each running container, as ps shows them. A "
        "container started straight from an image has the name `<unknown>`.\n\n"
        "With --json every container is an object with its path and its processes, which hold the "
        "Slurm job and step that they belong to.",
        variables=("ENROOT_DATA_PATH",),
    ),
    "load": Description(
        "The same as `import` and `create`, without the image file in between.",
        terms=_SOURCES,
        examples=(("enroot load -n work docker://ubuntu:24.04", "make the container `work`"),),
        variables=("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_FORCE_OVERRIDE"),
    ),
    "remove": Description(
        "Asks before each one, unless --force or ENROOT_FORCE_OVERRIDE is set, and deletes on `y`. "
        "A container in use is not deleted.",
        variables=("ENROOT_DATA_PATH", "ENROOT_FORCE_OVERRIDE"),
    ),
    "start": Description(
        "Starts a root filesystem of ENROOT_DATA_PATH by its name, or an image by its path, as the "
        "user who calls, in a user and mount namespace of its own. The calling process becomes the "
        "container: signals, terminal and exit status are the command's.\n\n"
        "The image's /etc/rc is given COMMAND and the arguments; where there is no such script "
        "COMMAND is run itself, and without COMMAND a shell. Options belong before NAME: what "
        "follows it is the command.\n\n"
        "What is written while an image runs is gone when it ends.",
        examples=(
            ("enroot start work", "a shell"),
            ("enroot start --root --rw work apt-get install -y gdb", "change the container"),
            ("enroot start -m /data:/mnt -e DEBUG=1 tool.sqsh tool --fast", "from an image"),
            ("enroot start -m set.sqsh:/set:squashfs work ls /set", "see into a squashfs file"),
        ),
        variables=(
            "ENROOT_DATA_PATH",
            "ENROOT_RUNTIME_PATH",
            "ENROOT_SYSCONF_PATH",
            "ENROOT_CONFIG_PATH",
            "ENROOT_LOGIN_SHELL",
            "ENROOT_ROOTFS_WRITABLE",
            "ENROOT_REMAP_ROOT",
            "ENROOT_UNSHARE_PID",
            "ENROOT_UNSHARE_NET",
            "ENROOT_UNSHARE_IPC",
            "ENROOT_UNSHARE_UTS",
            "ENROOT_MOUNT_HOME",
            "ENROOT_RESTRICT_DEV",
            "ENROOT_NATIVE_OVERLAYFS",
            "ENROOT_ALLOW_SUPERUSER",
            "ENROOT_HOOK_TIMEOUT",
        ),
    ),
    "info": Description(
        "Prints the version, the configuration files in the order in which they are read, the "
        "file system and the free space behind every path, and every ENROOT_* setting in force.\n\n"
        "With the name of a container or the path of an image: where it was imported from, with "
        "the digest, and its labels.",
        examples=(("enroot info ubuntu.sqsh", "which image is this?"),),
    ),
    "doctor": Description(
        "Checks user namespaces and the switches that forbid them, overlayfs, FUSE and squashfuse, "
        "the folders of every ENROOT_* path and their free space, the credentials file and the "
        "registries: those named, else those with credentials, else Docker Hub. Each fault comes "
        "with the command that mends it. The exit status is 1 if there is a fault.\n\n"
        "It changes nothing, and works inside a Slurm step: `srun enroot doctor`.",
        variables=("ENROOT_CONNECT_TIMEOUT", "ENROOT_ALLOW_HTTP"),
    ),
    "cache list": Description(
        "Layers, finished images and extractions, with their size and when they were last used. "
        'What NVIDIA\'s Enroot keeps in the same folder is there too, as "nvidia".',
        variables=("ENROOT_CACHE_PATH",),
    ),
    "cache prune": Description(
        "Deletes layers that no image in the cache needs, what killed processes left behind, and "
        "extractions of images that are gone. What NVIDIA's Enroot keeps in the same folder goes "
        "with --nvidia only; use it when no import of NVIDIA's Enroot runs.",
        variables=("ENROOT_CACHE_PATH",),
    ),
    "cache limit": Description(
        "Deletes the least recently used entries until the cache fits into SIZE, a number of bytes "
        "or one with K, M, G or T behind it; without SIZE into ENROOT_CACHE_LIMIT. What is in use "
        "stays; what NVIDIA's Enroot keeps there is not counted.",
        examples=(("enroot cache limit 50G", "keep the newest 50 GiB"),),
        variables=("ENROOT_CACHE_PATH", "ENROOT_CACHE_LIMIT"),
    ),
    "gpu list": Description(
        "NVIDIA's, AMD's and Intel's GPUs, MIG devices, RDMA devices, and the names that CDI "
        "specifications give. The number is the one that --gpus takes; a GPU without one may not "
        "be used here, and a warning says why. No device is opened.",
    ),
    "gpu plan": Description(
        "Prints every device, library, program and file that a start would put in, and the reason "
        "for each. Without --gpus and --device it is all that there is. NAME is a container, PATH "
        "the folder of a root filesystem; with one of them the JSON form says where in it "
        "everything goes. Nothing is changed.",
        examples=(("enroot gpu plan --gpus 0 work", "what `start --gpus 0 work` would put in"),),
    ),
    "cdi generate": Description(
        "Prints a specification in YAML, or in JSON with --json, of what NVIDIA's driver needs in "
        "a container, for podman, containerd, CRI-O and Kubernetes.",
        examples=(
            ("enroot cdi generate | sudo tee /etc/cdi/nvidia.yaml", "tell the other programs"),
        ),
    ),
    "completion": Description(
        "SHELL is bash, zsh or fish.",
        examples=(
            ('eval "$(enroot completion bash)"', "in ~/.bashrc"),
            ('eval "$(enroot completion zsh)"', "in ~/.zshrc, after compinit"),
            ("enroot completion fish | source", "in ~/.config/fish/config.fish"),
        ),
    ),
    "man": Description(
        "Shows a page on a terminal where man is installed; prints its roff text elsewhere.",
        examples=(
            ("enroot man --output ~/.local/share/man/man1", "install the pages for yourself"),
        ),
    ),
    "help": Description("The same as `enroot COMMAND --help`."),
    "version": Description(
        "This is the version of NVIDIA's Enroot whose behaviour this program has, for scripts "
        "that compare it; `enroot info` tells the version of the program itself.",
    ),
}
