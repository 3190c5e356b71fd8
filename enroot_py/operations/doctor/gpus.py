"""Examine GPUs: whether there is a driver, and whether this process may use its devices."""

from __future__ import annotations

from enroot_py.errors import EnrootError
from enroot_py.operations.doctor.findings import Finding, fault, note, ok
from enroot_py.operations.gpu import DeviceReport, gpu_list
from enroot_py.settings import Settings


def examine_gpus(settings: Settings) -> list[Finding]:
    """Return the findings about NVIDIA's driver and CDI files; none where there are neither."""
    try:
        report = gpu_list(settings=settings)
    except EnrootError as error:
        return [fault("GPUs", str(error), *([f"# {error.hint}"] if error.hint else []))]
    findings = [_driver(report)] if report.nvidia.found_in else []
    if report.cdi_errors:
        shown = (f"# {message}" for message in report.cdi_errors[1:4])
        findings.append(note("CDI", report.cdi_errors[0], *shown))
    return findings


def _driver(report: DeviceReport) -> Finding:
    usable = len(report.nvidia.usable_gpus)
    text = f"NVIDIA driver {report.nvidia.version or '(unknown version)'}, "
    text += f"{usable} of {len(report.nvidia.gpus)} GPUs may be used here"
    if usable == len(report.nvidia.gpus):
        return ok("GPUs", text)
    # In a Slurm step that is what its GRES ask for; elsewhere it is a permission.
    return note("GPUs", text, *(f"# {node}: {reason}" for node, reason in report.denied[:4]))
