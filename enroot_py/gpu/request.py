"""What is asked for: the flags, the launcher's and the container's environment, the configuration.

Precedence (as in the original): a variable in the launcher's own environment wins; otherwise the
last assignment in the container's environment, which begins with the image's, counts. `--gpus`
stands above both.

CDI device names that come from the container's environment are refused: an image must not choose
what is taken from the host. Source: enroot 4.1.2 conf/hooks/98-nvidia.sh; docs/adr/0045.
"""

from __future__ import annotations

from enroot_py.errors import SettingsError, UsageError
from enroot_py.gpu.nvidia.catalogue import parse_capabilities
from enroot_py.gpu.nvidia.requirement import requirement_variables, requirements_disabled
from enroot_py.gpu.nvidia.selection import DeviceList, parse_device_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_GATES = {"GDS": "gds", "GDRCOPY": "gdrcopy", "MOFED": "mofed", "NVSWITCH": "nvswitch"}
_MIG_KINDS = ("CONFIG", "MONITOR")
_LEGACY = "the image's CUDA_VERSION"
_MAX_CHANNEL = (1 << 20) - 1


class GpuOptions(NamedTuple):
    """The configuration's part: ENROOT_GPU_* and ENROOT_CDI_* settings.

    Attributes:
        required: GPUs asked for by an image alone must be there too.
        default_devices: device list of containers that do not ask for GPUs; "" for none.
        legacy_images: take an image with CUDA_VERSION and no device list as asking for all GPUs,
            all capabilities, and a driver for that version.
        proc: treatment of /proc/driver/nvidia: none, params, full; "" chooses by the namespace.
        compat: forward compatibility: auto, off, force.
        compat_folder: where images keep their compat libraries, path in the rootfs.
        prefer_cdi: use an installed nvidia.com/gpu specification for NVIDIA_VISIBLE_DEVICES.
        cdi_folders: folders of CDI specifications, rising priority.
        unknown_hooks: what to do with CDI hooks that are not known here: warn, error, run.
        ignore_privileged: leave out CDI edits that need privileges instead of failing.
        rehome: whether libraries and programs of an nvidia.com specification leave their paths for
            the private folder; otherwise they are at both places.
    """

    required: bool = False
    default_devices: str = ""
    legacy_images: bool = False
    proc: str = ""
    compat: str = "auto"
    compat_folder: str = "/usr/local/cuda/compat"
    prefer_cdi: bool = False
    cdi_folders: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    unknown_hooks: str = "warn"
    ignore_privileged: bool = False
    rehome: bool = True


class GpuRequest(NamedTuple):
    """What is asked of NVIDIA's driver, and of CDI.

    Attributes:
        devices: the device list.
        origin: what the device list came from, for messages.
        text: the device list as written.
        explicit: the user or the administrator asked, not the image alone.
        capabilities: driver capabilities.
        capabilities_text: as written, "" if the default was taken.
        requirements: (variable, expression) to check; none if the check is off.
        mig_config, mig_monitor: MIG administration is asked for.
        mig_explicit: … by the launcher's environment, not by the container's.
        imex: IMEX channels asked for: None is all there are.
        gates: further groups of devices: gds, gdrcopy, mofed, nvswitch.
        cdi: CDI device names.
        warnings: what the user should know about the request itself.
    """

    devices: DeviceList
    origin: str = ""
    text: str = ""
    explicit: bool = False
    capabilities: frozenset[str] = frozenset()
    capabilities_text: str = ""
    requirements: tuple[tuple[str, str], ...] = ()
    mig_config: bool = False
    mig_monitor: bool = False
    mig_explicit: bool = False
    imex: frozenset[int] | None = None
    gates: frozenset[str] = frozenset()
    cdi: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


NOTHING = DeviceList(nothing=True)


def read_options(environ: Mapping[str, str]) -> GpuOptions:
    """Read the configuration.

    Args:
        environ: the settings' environment, from which false values were removed.

    Raises:
        SettingsError: naming the setting that has an unknown value.
    """

    def choice(name: str, default: str, *values: str) -> str:
        value = environ.get(name, default)
        if value not in values:
            raise SettingsError(
                f"Invalid value for {name}: {value}", hint=f"expected one of {', '.join(values)}"
            )
        return value

    folders = [part for part in environ.get("ENROOT_CDI_DIRS", "").split(":") if part]
    default = GpuOptions()
    return GpuOptions(
        required="ENROOT_GPU_REQUIRED" in environ,
        default_devices=environ.get("ENROOT_GPU_DEFAULT_DEVICES", ""),
        legacy_images="ENROOT_GPU_LEGACY_IMAGES" in environ,
        proc=choice("ENROOT_GPU_PROC", "auto", "auto", "none", "params", "full").replace(
            "auto", ""
        ),
        compat=choice("ENROOT_GPU_COMPAT", "auto", "auto", "off", "force"),
        compat_folder=environ.get("ENROOT_GPU_COMPAT_PATH") or default.compat_folder,
        prefer_cdi="ENROOT_GPU_PREFER_CDI" in environ,
        cdi_folders=tuple(folders) or default.cdi_folders,
        unknown_hooks=choice("ENROOT_CDI_UNKNOWN_HOOKS", "warn", "warn", "error", "run"),
        ignore_privileged="ENROOT_CDI_IGNORE_PRIVILEGED" in environ,
        rehome=choice("ENROOT_CDI_REHOME_LIBRARIES", "auto", "auto", "never") == "auto",
    )


def read_request(
    launcher: Mapping[str, str],
    container: Mapping[str, str],
    options: GpuOptions,
    *,
    gpus: str = "",
    devices: tuple[str, ...] = (),
) -> GpuRequest:
    """Put the request together.

    Args:
        launcher: the launcher's environment, configuration files included.
        container: the container's environment so far.
        gpus: `--gpus`; "" if not given.
        devices: `--device`.

    Raises:
        UsageError: naming the variable that is malformed.
    """
    merged = _merge(launcher, container)
    text, origin, explicit = _device_text(launcher, container, options, gpus)
    wanted, cdi, warnings = _devices(parse_device_list(text), devices, explicit)
    legacy = origin == _LEGACY
    text_of_caps = merged.get("NVIDIA_DRIVER_CAPABILITIES", "all" if legacy else "")
    return GpuRequest(
        devices=wanted,
        origin=origin,
        text=text,
        explicit=explicit,
        capabilities=parse_capabilities(text_of_caps),
        capabilities_text=text_of_caps,
        requirements=_requirements(merged, container.get("CUDA_VERSION", "") if legacy else ""),
        mig_config=_only_all(merged, "NVIDIA_MIG_CONFIG_DEVICES"),
        mig_monitor=_only_all(merged, "NVIDIA_MIG_MONITOR_DEVICES"),
        mig_explicit=any(f"NVIDIA_MIG_{kind}_DEVICES" in launcher for kind in _MIG_KINDS),
        imex=parse_channels(merged.get("NVIDIA_IMEX_CHANNELS", "")),
        gates=_open_gates(merged),
        cdi=cdi,
        warnings=warnings,
    )


def _open_gates(merged: Mapping[str, str]) -> frozenset[str]:
    def enabled(name: str) -> bool:
        return merged.get(f"NVIDIA_{name}", "").strip().lower() == "enabled"

    return frozenset(gate for name, gate in _GATES.items() if enabled(name))


def _devices(
    wanted: DeviceList, named: tuple[str, ...], explicit: bool
) -> tuple[DeviceList, tuple[str, ...], tuple[str, ...]]:
    """Tell CDI names from others: returns the native list, the CDI names, and warnings."""
    cdi = wanted.cdi
    warnings: tuple[str, ...] = ()
    if cdi and not explicit:
        refused = (
            f"cdi: {', '.join(cdi)} in the container's {VISIBLE} is not taken from there; "
            "name it with --device"
        )
        cdi, warnings = (), (refused,)
    if cdi and not wanted.everything and not wanted.items:
        wanted = NOTHING  # nothing but CDI names: the native injection has nothing to do
    if not explicit and any(name.startswith("nvidia.com/gpu=") for name in named):
        wanted = NOTHING  # whoever names GPUs by CDI does not want those that the image asks for
    return wanted, tuple(dict.fromkeys((*named, *cdi))), warnings


def _requirements(merged: Mapping[str, str], legacy: str) -> tuple[tuple[str, str], ...]:
    """Return what is to be checked; `legacy` is the CUDA version of an image of old, or ""."""
    if requirements_disabled(merged.get("NVIDIA_DISABLE_REQUIRE", "")):
        return ()
    own = (("CUDA_VERSION", _legacy_requirement(legacy)),) if legacy else ()
    return requirement_variables(merged) + own


def parse_channels(text: str) -> frozenset[int] | None:
    """Parse NVIDIA_IMEX_CHANNELS: `all`, or numbers and `channelN` between commas.

    Returns:
        The channels, or None for all that there are (the default).
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words or "all" in words:
        return None
    channels = set()
    for word in words:
        digits = word[len("channel") :] if word.startswith("channel") else word
        if not (digits.isascii() and digits.isdigit()) or int(digits) > _MAX_CHANNEL:
            raise UsageError(
                f'gpu: unknown channel "{word}" in NVIDIA_IMEX_CHANNELS',
                hint=f"expected all, or numbers from 0 to {_MAX_CHANNEL}",
            )
        channels.add(int(digits))
    return frozenset(channels)


def _merge(launcher: Mapping[str, str], container: Mapping[str, str]) -> dict[str, str]:
    merged = {name: value for name, value in container.items() if name.startswith("NVIDIA_")}
    merged.update((name, value) for name, value in launcher.items() if name.startswith("NVIDIA_"))
    return merged


def _device_text(
    launcher: Mapping[str, str], container: Mapping[str, str], options: GpuOptions, gpus: str
) -> tuple[str, str, bool]:
    """Return the device list, what it came from, and whether somebody asked for it explicitly."""
    text, origin, explicit = "", VISIBLE, False
    if gpus:
        text, origin, explicit = gpus, "--gpus", True
    elif VISIBLE in launcher:
        text, explicit = launcher[VISIBLE], True
    elif VISIBLE in container:
        text, origin = container[VISIBLE], f"the container's {VISIBLE}"
    elif options.default_devices:
        text, origin, explicit = options.default_devices, "ENROOT_GPU_DEFAULT_DEVICES", True
    elif (
        options.legacy_images
        and "CUDA_VERSION" in container
        and "NVIDIA_REQUIRE_CUDA" not in container
    ):
        text, origin = "all", _LEGACY
    if text.strip().lower() == "slurm":
        return _slurm_devices(launcher), f"{origin}=slurm", explicit
    return text, origin, explicit or (options.required and bool(text))


def _legacy_requirement(version: str) -> str:
    """Return what an image of before NVIDIA_REQUIRE_CUDA needs: CUDA of its first two numbers."""
    parts = [part for part in version.split(".") if part.isascii() and part.isdigit()]
    return f"cuda>={'.'.join(parts[:2])}" if parts else ""


def _slurm_devices(launcher: Mapping[str, str]) -> str:
    """Return the job's GPUs; Slurm numbers all GPUs of the node, in PCI order."""
    text = launcher.get("SLURM_STEP_GPUS") or launcher.get("SLURM_JOB_GPUS")
    return ",".join("host:" + item for item in text.split(",")) if text else "none"


def _only_all(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "").strip().lower()
    if value and value != "all":
        raise UsageError(f'gpu: cannot parse {name}: "{value}"', hint="only the value all is known")
    return bool(value)
