"""`srun --mpi=pmi2`, with programs that speak both dialects by hand."""

from __future__ import annotations

from tests.kubernetes.launcher.conftest import StartPods

PMI1 = r"""
import os, socket, sys
sock = socket.socket(fileno=int(os.environ["PMI_FD"]))
file = sock.makefile("rw")
def ask(text):
    file.write(text + "\n"); file.flush()
    return dict(word.split("=", 1) for word in file.readline().split())
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
assert ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
assert ask("cmd=get_maxes")["vallen_max"] == "1024"
name = ask("cmd=get_my_kvsname")["kvsname"]
assert ask("cmd=get_universe_size")["size"] == str(size)
for turn in range(2):
    assert ask(f"cmd=put kvsname={name} key=k{turn}.{rank} value=v{rank}")["rc"] == "0"
    assert ask("cmd=barrier_in")["cmd"] == "barrier_out"
    found = [ask(f"cmd=get kvsname={name} key=k{turn}.{other}")["value"] for other in range(size)]
    assert found == [f"v{other}" for other in range(size)], found
assert ask(f"cmd=get kvsname={name} key=nosuch")["rc"] == "-1"
assert ask("mcmd=spawn")["rc"] == "-1"
print(rank, size, name, ask(f"cmd=get kvsname={name} key=PMI_process_mapping")["value"])
if "abort" in sys.argv:
    if rank == 1:
        file.write("cmd=abort exitcode=7\n"); file.flush()
    import time; time.sleep(60)
assert ask("cmd=finalize")["cmd"] == "finalize_ack"
"""

PMI2 = r"""
import os, socket
sock = socket.socket(fileno=int(os.environ["PMI_FD"]))
def read(count):
    data = b""
    while len(data) < count: data += sock.recv(count - len(data))
    return data.decode()
def ask(text):
    sock.sendall(b"%6d" % len(text) + text.encode())
    words = read(int(read(6))).replace(";;", "\0").split(";")
    return {k: v.replace("\0", ";") for k, _, v in (word.partition("=") for word in words)}
sock.sendall(b"cmd=init pmi_version=2 pmi_subversion=0\n")
assert "rc=0" in read(len("cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"))
full = ask("cmd=fullinit;pmijobid=x;pmirank=0;threaded=FALSE;")
rank, size = int(full["rank"]), int(full["size"])
job = ask("cmd=job-getid;thrid=5;")
assert job["thrid"] == "5"
ask(f"cmd=kvs-put;key=k{rank};value=a;;{rank};")
assert ask("cmd=kvs-fence;")["rc"] == "0"
for other in range(size):
    assert ask(f"cmd=kvs-get;jobid=;srcid=-1;key=k{other};")["value"] == f"a;{other}"
assert ask("cmd=kvs-get;key=nosuch;")["found"] == "FALSE"
local = int(os.environ["SLURM_LOCALID"])
if local == 0:
    import time; time.sleep(0.2)
    ask(f"cmd=info-putnodeattr;key=n;value={rank};")
else:
    assert ask("cmd=info-getnodeattr;key=n;wait=TRUE;")["value"] == str(rank - local)
assert ask("cmd=spawn;ncmds=1;")["rc"] == "-1"
mapping = ask("cmd=info-getjobattr;key=PMI_process_mapping;")["value"]
print(rank, size, job["jobid"], mapping, ask("cmd=info-getjobattr;key=universeSize;")["value"])
assert ask("cmd=finalize;")["rc"] == "0"
"""


def test_programs_of_both_dialects_find_one_another(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        until [ -s two.py ]; do sleep 0.02; done
        srun -n4 --mpi=pmi2 /usr/bin/python3 one.py | sort; echo "status ${PIPESTATUS[0]}"
        srun -n4 --mpi=pmi2 /usr/bin/python3 two.py | sort; echo "status ${PIPESTATUS[0]}"
        srun -n3 -m cyclic --mpi=pmi2 /usr/bin/python3 one.py | sort
        srun -n4 --mpi=pmi2 /usr/bin/python3 one.py abort > /dev/null; echo "abort $?"
        srun -n4 printenv PMI_FD; echo "none $?"
        """,
        2,
    )
    (pods.work / "one.py").write_text(PMI1)
    (pods.work / "two.py").write_text(PMI2)
    assert pods.wait() == 0, pods.log()
    assert [line for line in pods.output.splitlines() if "srun" not in line] == [
        *(f"{rank} 4 4711.0 (vector,(0,2,2))" for rank in range(4)),
        "status 0",
        *(f"{rank} 4 4711.1 (vector,(0,2,2)) 4" for rank in range(4)),
        "status 0",
        *(f"{rank} 3 4711.2 (vector,(0,2,1),(0,1,1))" for rank in range(3)),
        "abort 137",
        "none 1",
    ]
    assert "MPI_Abort" in pods.output
