"""What the manual says about settings, files and exit statuses.

A test compares the settings here with those that `settings.py` reads.
"""

from __future__ import annotations

EXIT_STATUSES = (
    ("0", "Done."),
    ("1", "An error, which a line on stderr explains; or a usage text that was not asked for."),
    ("126", "start, exec: the command was found and cannot be executed."),
    ("127", "start, exec: there is no such command."),
    ("129, 130, 143", "Told to end by SIGHUP, SIGINT or SIGTERM."),
    ("141", "Nobody reads the output any more."),
    ("any other", "start, exec, batch: the status of the command in the container."),
)

_HOOKS = (
    "Hooks, mounts and variables of every container, in ENROOT_SYSCONF_PATH and in "
    "ENROOT_CONFIG_PATH."
)
_LOGINS = (
    "Registry logins, in the form of netrc: `machine HOST login USER password PASSWORD`. PASSWORD "
    "may be `$NAME` or `$(command)`."
)
_FOLDERS = "In ENROOT_CONFIG_PATH or ENROOT_SYSCONF_PATH:"
FILES = (
    ("ENROOT_SYSCONF_PATH/enroot.conf, enroot.conf.d/*.conf", "Settings, one `NAME value` a line."),
    ("hooks.d/*.sh, mounts.d/*.fstab, environ.d/*.env", _HOOKS),
    ("ENROOT_CONFIG_PATH/.credentials", _LOGINS),
    ("mirrors", f"{_FOLDERS} the text of ENROOT_MIRRORS."),
    ("certs.d/HOST[:PORT]/*.crt", f"{_FOLDERS} authorities to trust for a registry."),
)

VARIABLES = {
    "ENROOT_LIBRARY_PATH": "Folder of the files that come with the program.",
    "ENROOT_SYSCONF_PATH": "Folder of the system's configuration; /etc/enroot.",
    "ENROOT_RUNTIME_PATH": "Folder of containers being started; $XDG_RUNTIME_DIR/enroot.",
    "ENROOT_CONFIG_PATH": "Folder of the user's configuration; $XDG_CONFIG_HOME/enroot.",
    "ENROOT_CACHE_PATH": "Folder of layers and images; $XDG_CACHE_HOME/enroot.",
    "ENROOT_DATA_PATH": "Folder of containers; $XDG_DATA_HOME/enroot.",
    "ENROOT_TEMP_PATH": "Folder of unfinished work; $TMPDIR, or /tmp.",
    "ENROOT_SQUASH_OPTIONS": "How images are compressed, in mksquashfs's words; "
    "`-comp zstd -Xcompression-level 1`.",
    "ENROOT_MAX_PROCESSORS": "How many processors to use; 0 for all, as by default.",
    "ENROOT_MAX_CONNECTIONS": "How many connections to a registry at once; 10, 0 for no limit.",
    "ENROOT_CONNECT_TIMEOUT": "Seconds to wait for a connection; 30, 0 for no limit.",
    "ENROOT_TRANSFER_TIMEOUT": "Seconds that a download may take; 0 for no limit, as by default.",
    "ENROOT_TRANSFER_RETRIES": "How often to try a download again; 0.",
    "ENROOT_HOOK_TIMEOUT": "Seconds that a hook may take; 60, 0 for no limit.",
    "ENROOT_MAX_IMAGE_SIZE": "Bytes that an image may unpack to; 0 for no limit, as by default.",
    "ENROOT_MAX_IMAGE_ENTRIES": "Files that an image may hold; 0 for no limit, as by default.",
    "ENROOT_CACHE_LIMIT": "Bytes that the cache may hold; 0 for no limit, as by default.",
    "ENROOT_MIRRORS": "Hosts to ask in place of registries, such as "
    "`docker.io=mirror.example:5000`; or the path of a file with such words.",
    "ENROOT_LOGIN_SHELL": "Start the command by a login shell; on.",
    "ENROOT_ALLOW_SUPERUSER": "Let root keep his rights inside containers; off.",
    "ENROOT_ALLOW_HTTP": "Speak HTTP with registries; off. `redirects`: only where they redirect.",
    "ENROOT_ROOTFS_WRITABLE": "Make root filesystems writable, as --rw does; off.",
    "ENROOT_NATIVE_OVERLAYFS": "The kernel's overlayfs is always used; off is warned of.",
    "ENROOT_REMAP_ROOT": "Be root inside, as --root does; off.",
    "ENROOT_UNSHARE_PID": "The same as --pid; off.",
    "ENROOT_UNSHARE_NET": "The same as --net; off.",
    "ENROOT_UNSHARE_IPC": "The same as --ipc; off.",
    "ENROOT_UNSHARE_UTS": "The same as --uts; off.",
    "ENROOT_MOUNT_HOME": "Mount the home folder inside; off.",
    "ENROOT_RESTRICT_DEV": "Give containers a small /dev; off.",
    "ENROOT_BUNDLE_ALL": "The same as --all of bundle; off.",
    "ENROOT_BUNDLE_CHECKSUM": "The same as --checksum of bundle; off.",
    "ENROOT_FORCE_OVERRIDE": "The same as --force; off.",
}
