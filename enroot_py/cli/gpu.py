"""The commands about accelerators: gpu list, gpu plan, cdi generate."""

from __future__ import annotations

from enroot_py.cli.output import write_json, write_line, write_table, write_text
from enroot_py.log import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.cli.parse import Arguments
    from enroot_py.operations.gpu import DeviceReport, PlanReport


def gpu_list(arguments: Arguments) -> int:
    """`enroot gpu list`: the accelerators of this host."""
    from enroot_py.operations.gpu import gpu_list as look

    report = look()
    if arguments.flag("json"):
        write_json(_describe_devices(report))
        return 0
    rows = [("NUMBER", "KIND", "NAME", "ADDRESS", "MODEL")]
    for gpu in report.nvidia.gpus:
        number = str(gpu.number) if gpu.usable else "-"
        rows.append((number, "nvidia", gpu.uuid or "?", gpu.pci or "?", gpu.model or "?"))
        for at, mig in enumerate(gpu.mig_devices):
            instances = f"GPU instance {mig.gpu_instance}, compute instance {mig.compute_instance}"
            rows.append((f"{number}:{at}", "nvidia mig", mig.uuid or "?", "", instances))
    for vendor, accelerators in report.others:
        for at, accelerator in enumerate(accelerators):
            rows.append((str(at), vendor, accelerator.unique_id or "?", accelerator.address, ""))
    for device in report.rdma:
        rows.append(("", "rdma", device.name or device.verbs, device.pci, device.driver))
    rows += [("", "cdi", name, "", "") for name in report.cdi_names]
    if len(rows) == 1:
        write_line("There is no accelerator on this host.")
    else:
        write_table(rows)
    if report.nvidia.version:
        cuda = f", CUDA {report.cuda}" if report.cuda else ""
        write_line(f"NVIDIA driver {report.nvidia.version}{cuda}")
    for node, reason in report.denied:
        warn(f"{node}: {reason}")
    for message in report.cdi_errors:
        warn(message)
    return 0


def _describe_devices(report: DeviceReport) -> dict[str, object]:
    denied = dict(report.denied)
    return {
        "driver": report.nvidia.version,
        "cuda": report.cuda,
        "nvidia": [
            {
                "number": gpu.number if gpu.usable else None,
                "uuid": gpu.uuid,
                "pci": gpu.pci,
                "model": gpu.model,
                "node": gpu.node.path if gpu.node else "",
                "denied": denied.get(gpu.node.path, "") if gpu.node else "",
                "mig": [
                    {
                        "gpu_instance": mig.gpu_instance,
                        "compute_instance": mig.compute_instance,
                        "uuid": mig.uuid,
                    }
                    for mig in gpu.mig_devices
                ],
            }
            for gpu in report.nvidia.gpus
        ],
        "others": [
            {"vendor": vendor, "address": found.address, "unique_id": found.unique_id}
            for vendor, accelerators in report.others
            for found in accelerators
        ],
        "rdma": [
            {"verbs": device.verbs, "name": device.name, "pci": device.pci, "driver": device.driver}
            for device in report.rdma
        ],
        "cdi": list(report.cdi_names),
        "cdi_errors": list(report.cdi_errors),
    }


def gpu_plan(arguments: Arguments) -> int:
    """`enroot gpu plan`: what a container would be given, and why."""
    from enroot_py.operations.gpu import describe_plan
    from enroot_py.operations.gpu import gpu_plan as plan

    report = plan(
        gpus=arguments.text("gpus"),
        devices=arguments.texts("device"),
        environ=arguments.texts("env"),
        target=arguments.operands[0] if arguments.operands else "",
    )
    if arguments.flag("json"):
        write_json(describe_plan(report))
        return 0
    write_table(_plan_rows(report))
    injection = report.injection
    for name, value in injection.environ:
        write_line(f"variable  {name}={value}")
    for note in injection.notes:
        write_line(f"note      {note}")
    for message in (*report.request.warnings, *injection.warnings):
        warn(message)
    return 0


def _plan_rows(report: PlanReport) -> list[tuple[str, str, str, str]]:
    found = report.injection
    rows = [("WHAT", "FROM", "AS", "WHY")]
    rows += [("device", item.source, item.target, item.reason) for item in found.devices]
    rows += [("library", item.source, item.soname, item.reason) for item in found.libraries]
    rows += [("program", item.source, item.target, item.reason) for item in found.programs]
    rows += [(item.kind, item.source, item.target, item.reason) for item in found.binds]
    rows += [("link", item.target, item.path, item.reason) for item in found.links]
    rows += [("text", "", item.path, item.reason) for item in found.texts]
    rows += [("hook", item.path, item.stage, "a CDI specification asks") for item in found.hooks]
    rows += [("hidden", "", path, "not asked for") for path in found.hidden]
    return rows


def cdi_generate(arguments: Arguments) -> int:
    """`enroot cdi generate`: a CDI specification of this host's GPUs."""
    from enroot_py.operations.gpu import cdi_generate as generate
    from enroot_py.operations.gpu import format_cdi

    document = generate(
        capabilities=arguments.text("capabilities") or "all",
        hook=arguments.text("hook") or "auto",
    )
    write_text(format_cdi(document, as_json=arguments.flag("json")))
    return 0
