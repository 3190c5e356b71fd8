"""`pyxis kube launcher`: the file that pods run, alone or as a site's ConfigMap."""

from __future__ import annotations

import sys

import click

from enroot_py import NotFoundError, UsageError


@click.command("launcher")
@click.option("-o", "--output", default="-", metavar="FILE", help="instead of standard output")
@click.option(
    "--config-map",
    metavar="NAME",
    help="print a ConfigMap for kubectl: the one that a site profile names",
)
def launcher_command(output: str, config_map: str | None) -> int:
    """Write launcher.pyz, for pods of Python 3.8 or newer.

    With --config-map a site keeps one copy in each namespace:
    pyxis kube launcher --config-map pyxis-launcher | kubectl apply -n NAMESPACE -f -
    """
    from pyxis_py.kubernetes.launcher.zipapp import build_launcher

    data = build_launcher()
    if config_map is not None:
        data = _config_map(config_map, data)
    elif output == "-" and sys.stdout.isatty():
        raise UsageError("A zip file is nothing for a terminal", hint="give --output FILE")
    if output == "-":
        sys.stdout.buffer.write(data)
        return 0
    try:
        with open(output, "wb") as file:
            file.write(data)
    except OSError as error:
        raise NotFoundError(f"Cannot write {output}: {error.strerror}") from error
    return 0


def _config_map(name: str, data: bytes) -> bytes:
    import base64
    import re

    from pyxis_py.kubernetes.render.manifest_text import dump_manifests
    from pyxis_py.kubernetes.shapes.profile_shape import DNS_LABEL

    if not re.fullmatch(DNS_LABEL, name):
        raise UsageError(f"--config-map: not a name of an object: {name!r}")
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "pyxis"}},
        "binaryData": {"launcher.pyz": base64.b64encode(data).decode("ascii")},
    }
    return dump_manifests([manifest]).encode("utf-8")
