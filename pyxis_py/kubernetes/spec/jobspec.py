"""The job specification: everything that an sbatch command line and script ask for, typed.

One specification feeds every back end; job_reader.py makes it.

Pure. Source: sbatch(1) of Slurm 22.05.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyxis_py.args import Arguments
from pyxis_py.command_lines.slurm_options import GivenOption
from pyxis_py.kubernetes.spec.slurm_lists import Array, Dependencies
from pyxis_py.kubernetes.spec.slurm_values import Gres, Signal, Switches


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A batch job as it was asked for. 0, "", () and None mean: not asked.

    Attributes:
        name: as given; object names are made from it elsewhere.
        script: the script, byte for byte.
        script_name: its file's name.
        arguments: the script's arguments.
        nodes: the number of nodes (the largest of a range).
        nodes_least: the smallest of a range.
        memory: MiB for each of `memory_per` ("node", "cpu", "gpu"); None if not asked, 0 for all.
        time_limit: seconds; None for none. `time_given` tells whether it was asked for.
        constraint: alternatives of features that a node must all have.
        launcher: options that the launcher in the pod reads, as (name, value).
        export: the value of --export; None if not given.
        image_line: line of the `srun` that names the image, 0 if an option of the job does.
    """

    name: str
    script: str
    script_name: str
    arguments: tuple[str, ...] = ()
    given: tuple[GivenOption, ...] = ()
    nodes: int = 0
    nodes_least: int = 0
    ntasks: int = 0
    ntasks_per_node: int = 0
    ntasks_per_gpu: int = 0
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    mincpus: int = 0
    memory: int | None = None
    memory_per: str = "node"
    gpus: tuple[Gres, ...] = ()
    gpus_per_node: tuple[Gres, ...] = ()
    gpus_per_task: tuple[Gres, ...] = ()
    gres: tuple[Gres, ...] = ()
    time_limit: int | None = None
    time_given: bool = False
    signal: Signal | None = None
    partitions: tuple[str, ...] = ()
    qos: str = ""
    account: str = ""
    constraint: tuple[tuple[str, ...], ...] = ()
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclusive: bool = False
    switches: Switches | None = None
    segment: int = 0
    array: Array | None = None
    dependency: Dependencies | None = None
    hold: bool = False
    requeue: bool = True
    output: str = ""
    chdir: str = ""
    export: str | None = None
    tmp: int = 0
    reservation: str = ""
    licenses: str = ""
    wckey: str = ""
    comment: str = ""
    uid: int | None = None
    gid: int | None = None
    launcher: tuple[tuple[str, str], ...] = ()
    container: Arguments = Arguments()
    image_line: int = 0
