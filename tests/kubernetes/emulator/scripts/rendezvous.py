"""What torchrun does before training, without torch: a TCP store, workers, a sum of ranks.

The agent of node 0 serves the store; every agent starts its workers with RANK, LOCAL_RANK and
WORLD_SIZE. With --rdzv-endpoint instead of --master-addr, the host of that name serves and ranks go
to nodes as they come, which is torchrun's c10d backend.
"""

import argparse
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time


class Store(socketserver.ThreadingTCPServer):
    """Keys and values; `get` waits for a key, `add` counts."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port):
        super().__init__(("", port), Handler)
        self.values = {}
        self.changed = threading.Condition()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            for line in self.rfile:
                words = json.loads(line)
                with self.server.changed:
                    answer = self.answer(*words)
                    self.server.changed.notify_all()
                self.wfile.write(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass  # who left does not wait for the answer

    def finish(self):
        try:
            super().finish()
        except OSError:
            pass

    def answer(self, verb, key, value=None):
        values = self.server.values
        if verb == "set":
            values[key] = value
        elif verb == "add":
            values[key] = values.get(key, 0) + value
        else:
            self.server.changed.wait_for(lambda: key in values and values[key] != value, 30)
        return values[key]


class Client:
    def __init__(self, host, port):
        deadline = time.monotonic() + 30
        while True:
            try:
                self.stream = socket.create_connection((host, port), 30).makefile("rwb")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def __call__(self, *words):
        self.stream.write(json.dumps(words).encode() + b"\n")
        self.stream.flush()
        return json.loads(self.stream.readline())

    def leave(self):
        """Count as gone; the answer may never come, since the store may be gone by then."""
        self.stream.write(json.dumps(["add", "gone", 1]).encode() + b"\n")
        self.stream.flush()

    def barrier(self, name, size):
        count = self("add", name, 1)
        while count < size:
            count = self("get", name, count)


def work():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = Client(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store("set", f"value {rank}", rank * rank)
    total = sum(store("get", f"value {other}") for other in range(size))
    store.barrier("done", size)
    print(f"rank {rank} of {size}, local {os.environ['LOCAL_RANK']}: {total}", flush=True)


def is_own_name(host):
    own = {socket.gethostname(), socket.getfqdn(), "localhost"}
    if host in own:
        return True
    mine = {row[4][0] for row in socket.getaddrinfo(socket.gethostname(), None)}
    return bool(mine & {row[4][0] for row in socket.getaddrinfo(host, None)})


def lead(options):
    host, port, rank = options.master_addr, options.master_port, options.node_rank
    if options.rdzv_endpoint:
        host, _, text = options.rdzv_endpoint.partition(":")
        port, rank = int(text), None
    serves = is_own_name(host) if rank is None else rank == 0
    if serves:
        threading.Thread(target=Store(port).serve_forever, daemon=True).start()
    store = Client(host, port)
    if rank is None:
        rank = store("add", "nodes", 1) - 1
    each = options.nproc_per_node
    workers = []
    for local in range(each):
        names = {
            "RANK": rank * each + local,
            "LOCAL_RANK": local,
            "WORLD_SIZE": options.nnodes * each,
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
        }
        environ = {**os.environ, **{name: str(value) for name, value in names.items()}}
        workers.append(subprocess.Popen([sys.executable, __file__, "--worker"], env=environ))
    statuses = [worker.wait() for worker in workers]
    store.barrier("agents", options.nnodes)
    if serves:
        count = 0
        while count < options.nnodes - 1:
            count = store("get", "gone", count)
    else:
        store.leave()
    return max(statuses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--nnodes", type=int)
    parser.add_argument("--nproc-per-node", type=int, default=1)
    parser.add_argument("--node-rank", type=int)
    parser.add_argument("--master-addr")
    parser.add_argument("--master-port", type=int)
    parser.add_argument("--rdzv-endpoint", default="")
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    return lead(options)


if __name__ == "__main__":
    sys.exit(main())
