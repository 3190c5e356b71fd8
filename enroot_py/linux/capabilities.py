"""Capabilities: all of them for the hooks of a start, none for what runs in the container.

Source: capabilities(7); enroot 4.1.2 bin/enroot-nsenter.c raise_capabilities() and
bin/enroot-switchroot.c drop_privileges().
"""

from __future__ import annotations

import errno

from enroot_py.errors import KernelError
from enroot_py.linux.kernel import (
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_RAISE,
    PR_CAPBSET_DROP,
    PR_SET_NO_NEW_PRIVS,
    Capabilities,
    Kernel,
)


def raise_ambient(kernel: Kernel) -> None:
    """Let executed programs keep the effective capabilities, whatever their user id.

    Hooks need it where the user keeps his id in the namespace: execve(2) of a program by a user
    other than root clears all capabilities but the ambient ones.
    """
    sets = kernel.capget()
    kernel.capset(Capabilities(sets.effective, sets.permitted, sets.effective))
    for number in range(sets.effective.bit_length()):
        if sets.effective >> number & 1:
            kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number)


def drop_privileges(kernel: Kernel, euid: int) -> None:
    """Give up what a program in the container must not have; nothing can be gained back.

    Root (in a user namespace a name for the caller, nothing more) keeps the capabilities of the
    namespace, so that package managers work; every other user loses all.
    """
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if euid == 0:
        return
    for number in range(64):
        try:
            kernel.prctl(PR_CAPBSET_DROP, number)
        except KernelError as error:
            if error.errno == errno.EINVAL:
                break  # past the kernel's last capability
            if error.errno != errno.EPERM:
                raise
    kernel.capset(Capabilities(0, 0, 0))
