"""The mounts and variables that every container has where the system's configuration has none.

A `mounts.d` or `environ.d` in the system's configuration folder replaces these tables whole; the
files that this package ships for it (share/enroot) say the same, and a test compares them. Pure.

Source: enroot 4.1.2 conf/mounts/*.fstab and conf/environ/*.env, for the effect.
"""

from __future__ import annotations

SYSTEM_FSTAB = """\
/proc     /proc     none  x-create=dir,rbind,rw,nosuid,nodev,noexec,rslave  0 -1
/sys      /sys      none  x-create=dir,rbind,ro,nosuid,nodev,noexec,rslave  0 -1
/dev      /dev      none  x-create=dir,rbind,rw,nosuid,noexec,rslave        0 -1
tmpfs     /tmp      tmpfs x-create=dir,rw,nosuid,nodev,mode=755,slave       0 -1
tmpfs     /var/run  tmpfs x-create=dir,rw,nosuid,nodev,mode=755,slave       0 -1
tmpfs     /var/lock tmpfs x-create=dir,rw,nosuid,nodev,mode=755,slave       0 -1
/dev/shm  /dev/shm  none  x-create=dir,bind,rw,nosuid,nodev,noexec,rslave   0 -1
"""
"""What a program expects of any system."""

_FILE = "x-create=file,bind,ro,nosuid,nodev,noexec,private"
CONFIG_FSTAB = f"""\
/etc/hosts       /etc/hosts       none  {_FILE}                0 -1
/etc/hostname    /etc/hostname    none  {_FILE},nofail,silent  0 -1
/etc/resolv.conf /etc/resolv.conf none  {_FILE},nofail,silent  0 -1
/etc/machine-id  /etc/machine-id  none  {_FILE},nofail,silent  0 -1
"""
"""The node's identity. Those files that some nodes lack may be missing."""

PID_FSTAB = """\
none /proc none x-create=dir,x-detach,nofail,silent           0 -1
proc /proc proc x-create=dir,rw,nosuid,nodev,noexec,private   0 -1
"""
"""What a pid namespace adds: a /proc of its own."""

NET_FSTAB = """\
none  /sys none  x-create=dir,x-detach,nofail,silent          0 -1
sysfs /sys sysfs x-create=dir,ro,nosuid,nodev,noexec,private  0 -1
"""
"""What a network namespace adds: a /sys that shows its devices."""

ENVIRONMENT = "TERM=${TERM}\n"
"""The variables that a container gets from the host."""
