"""The commented profile that `profile init` writes.

A test reads it, so that it never falls behind the shape.
"""

from __future__ import annotations

TEMPLATE = """\
# Site profile: what Slurm has in slurm.conf, for rendering sbatch scripts to Kubernetes.
# Every section but `version` may be left away; unknown fields are errors.
version: 1

cluster:
  name: training                # SLURM_CLUSTER_NAME
  dnsDomain: cluster.local      # the cluster's DNS domain
  namespace: default            # for accounts without one of their own
  partition: h100               # where --partition is not given
  target: kueue                 # kueue, kueue-job, volcano or slurm-bridge
  gpuApi: device-plugin         # device-plugin, dra or dra-extended
  registry: docker.io           # of images that name none
  # launcherConfigMap: pyxis-launcher # with the key launcher.pyz, in every namespace, instead of
  #                               # a copy in the ConfigMap of every job that is submitted
  # pythonImage: docker.io/library/python:3.12-slim # where --bring-python takes Python from
  ttlSeconds: 604800            # finished jobs are removed after so long
  hostnames: {}                 # Slurm's node name: value of kubernetes.io/hostname

accounts:                       # --account
  foundation: {namespace: foundation}

partitions:                     # --partition
  h100:
    queue: h100                 # Kueue LocalQueue, Volcano Queue, or Slurm partition
    nodeSelector: {}            # added to every pod
    tolerations: []             # likewise; nvidia.com/gpu is tolerated where GPUs are asked for
    node: {cpus: 176, memory: 1800Gi, gpus: 8}    # what one pod can have of a node
    topology:                   # only if the queue's flavor has a Topology (Kueue) or HyperNodes
      levels: [fabric.example.org/block, fabric.example.org/leaf]    # widest first
      switches: fabric.example.org/leaf     # the level of --switches=1
      segment: fabric.example.org/leaf      # the level of --segment
      switchesTier: 1           # Volcano's HyperNode tiers of the same two
      segmentTier: 1
    maxTime: 7-00:00:00         # the limit of jobs without --time, too
    guaranteed: false           # CPU limits equal to requests, for the static CPU manager
    computeDomain: false        # only where NVLink spans nodes (GB200, GB300)

qos:                            # --qos
  high:
    workloadPriorityClass: qos-high   # Kueue
    priorityClass: qos-high           # Kubernetes and Volcano
    preemptible: true
    graceSeconds: 120

features:                       # --constraint
  hbm80: {label: nvidia.com/gpu.memory, values: ["81559"]}

gres:                           # --gres, --gpus*
  gpu:
    resource: nvidia.com/gpu    # what the device plugin counts
    deviceClass: gpu.nvidia.com # DRA
    types:
      h100:
        nodeLabels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        selector: device.attributes['gpu.nvidia.com'].productName.lowerAscii().contains('h100')
      1g.10gb:
        resource: nvidia.com/mig-1g.10gb
        deviceClass: mig.nvidia.com
        selector: device.attributes['gpu.nvidia.com'].profile == '1g.10gb'

reservations:                   # --reservation
  maintenance: {nodeSelector: {site.example.org/reservation: maintenance}}

mounts:                         # --container-mounts, --output and home; the longest path wins
  - {path: /lustre, name: lustre, pvc: lustre}
  - {path: /home, name: home, nfs: {server: nfs.example.org, path: /home}}
  - {path: /scratch, name: scratch, hostPath: /scratch}
  # csi: {driver: …, volumeAttributes: {…}} and image: REFERENCE are the other two kinds;
  # submounts: true where other filesystems are mounted below the path.

registries:                     # --container-image
  nvcr.io: {pullSecret: nvcr-io, users: {}}
  # rewrite: mirror.example.org/nvcr replaces the host; users: secrets for USER@

fabric:                         # none, host, shared, sriov, dra, efa or gke
  kind: shared
  resources: {rdma/hca: "8"}    # for each pod with GPUs
  annotations: {}               # sriov: k8s.v1.cni.cncf.io/networks; gke: its interfaces
  environment: {}               # NCCL_* that a script may override

security:
  hostPaths: [/scratch]         # host paths that pods may mount
  userNamespaces: false         # hostUsers: false for --container-remap-root
  seccomp: RuntimeDefault
  allowRoot: true               # --container-remap-root and jobs of root
"""
