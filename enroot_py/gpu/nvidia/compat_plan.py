"""Put the image's forward-compatible libcuda into an injection, or say why it stays out. Pure."""

from __future__ import annotations

from enroot_py.gpu.injection import Injection, Library
from enroot_py.gpu.nvidia.compat import CompatDecision, CompatLibrary


def compat_injection(
    injection: Injection,
    candidate: CompatLibrary,
    decision: CompatDecision,
    search_path: str,
    driver: str,
) -> Injection:
    """Return the injection with the candidate's libraries in place of the host's, if it serves.

    The host's libnvidia-ml stays: it belongs to the kernel module.

    Args:
        search_path: the container's LD_LIBRARY_PATH.
        driver: version of the host's driver.
    """
    if candidate.warning:
        return injection._replace(warnings=(*injection.warnings, candidate.warning))
    if not candidate.version:
        return injection
    if not decision.use:
        return _left_out(injection, candidate, decision.reason, search_path, driver)
    replaced = {library.soname: library for library in candidate.libraries}
    replaced.pop("libnvidia-ml.so.1", None)
    libraries = [lib for lib in injection.libraries if lib.bits != 64 or lib.soname not in replaced]
    extra = {lib.soname: lib.names for lib in injection.libraries if lib.bits == 64}
    for soname, library in replaced.items():
        names = [name for name in extra.get(soname, ()) if name.endswith(".so")]
        if library.file != soname:
            names.insert(0, library.file)
        reason = f"forward compatibility: {decision.reason}"
        libraries.append(Library(library.source, soname, reason, tuple(names)))
    note = f"gpu: libcuda {candidate.version} of the image is used: {decision.reason}"
    return injection._replace(libraries=tuple(libraries), notes=(*injection.notes, note))


def _left_out(
    injection: Injection, candidate: CompatLibrary, reason: str, search_path: str, driver: str
) -> Injection:
    note = f"gpu: {candidate.folder} is not used: {reason or 'switched off'}"
    warnings = injection.warnings
    if _searched(candidate.folder, search_path):
        warning = (
            f"gpu: LD_LIBRARY_PATH has {candidate.folder}, whose libcuda {candidate.version} "
            f"does not go with the driver {driver}: CUDA will fail with error 803"
        )
        warnings = (*warnings, warning)
    return injection._replace(notes=(*injection.notes, note), warnings=warnings)


def _searched(folder: str, search_path: str) -> bool:
    """Tell whether a loader search path holds the compat folder or something beneath it."""
    own = folder.rstrip("/")
    for part in search_path.split(":"):
        clean = part.rstrip("/")
        if clean == own or clean.startswith(own + "/"):
            return True
    return False
