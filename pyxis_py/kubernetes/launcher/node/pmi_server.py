"""The server of one step's PMI on one node: what MPI programs put, get and wait for.

Values that tasks put travel with the fence, through srun, to all nodes of the step; whatever is
got was put before a fence, or by the same task.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.pmi_wire import (
    PmiError,
    format_message,
    process_mapping,
    take_messages,
)

FAILED = {"rc": "-1"}
_SPAWN = "processes cannot be spawned"


class StepFacts(NamedTuple):
    """What the server tells of a step.

    Attributes:
        name: the job's and the step's number.
        places: the number of the node of each rank.
    """

    name: str
    places: tuple[int, ...]


class _Client:
    """One task's connection."""

    def __init__(self, rank: int, sock: socket.socket) -> None:
        self.rank = rank
        self.socket = sock
        self.version = 1
        self.data = bytearray()
        self.fenced = False
        self.thread = ""

    def answer(self, words: Mapping[str, str]) -> None:
        """Send an answer; messages are small, and the task reads before it asks again."""
        if self.thread and self.version == 2:
            words = {**words, "thrid": self.thread}
        try:
            self.socket.sendall(format_message(words, self.version))
        except OSError:  # the task has ended: its status tells
            pass


class PmiServer:
    """Serves the tasks of a node.

    Args:
        on_fence: called with what tasks have put, when all of this node have come to a fence.
        on_abort: called with the status that a task ends the step with.
    """

    def __init__(
        self,
        loop: Loop,
        facts: StepFacts,
        on_fence: Callable[[dict[str, str]], None],
        on_abort: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._on_fence = on_fence
        self._on_abort = on_abort
        self._clients: dict[int, _Client] = {}
        mapping = process_mapping(facts.places)
        self._values = {"PMI_process_mapping": mapping}
        self._put: dict[str, str] = {}
        self._node_values: dict[str, str] = {}
        self._node_waiting: list[tuple[_Client, str]] = []

    def add_task(self, rank: int) -> tuple[int, dict[str, str]]:
        """Return the task's end of a connection, which the caller closes, and its variables."""
        ours, theirs = socket.socketpair()
        client = _Client(rank, ours)
        self._clients[rank] = client
        self._loop.on_readable(ours.fileno(), lambda: self._readable(client))
        fd = theirs.detach()
        return fd, {
            "PMI_FD": str(fd),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(len(self._facts.places)),
            "PMI_JOBID": self._facts.name,
            "PMI_SPAWNED": "0",
        }

    def _readable(self, client: _Client) -> None:
        try:
            data = client.socket.recv(64 * 1024)
        except OSError:
            data = b""
        if not data:
            self._leave(client)
            return
        client.data += data
        try:
            while True:
                found = take_messages(client.data, client.version)
                if not found:
                    return
                for words in found:
                    self._serve(client, words)
        except PmiError:
            self._leave(client)

    def _leave(self, client: _Client) -> None:
        if self._clients.pop(client.rank, None) is not None:
            self._loop.on_readable(client.socket.fileno(), None)
            client.socket.close()

    def close(self) -> None:
        """Cut all tasks off."""
        for client in list(self._clients.values()):
            self._leave(client)

    def _serve(self, client: _Client, words: dict[str, str]) -> None:
        command = words.get("cmd", "spawn")
        client.thread = words.get("thrid", "")
        if command == "init":
            self._init(client, words)
        elif command in ("barrier_in", "kvs-fence"):
            self._fence(client)
        elif command == "abort":
            text = words.get("exitcode", "1")
            self._on_abort(int(text) if text.lstrip("-").isdecimal() else 1)
        elif command == "info-getnodeattr":
            self._get_node_value(client, words)
        else:
            serve = self._serve_1 if client.version == 1 else self._serve_2
            client.answer(serve(command, words, client.rank))

    def _init(self, client: _Client, words: Mapping[str, str]) -> None:
        version = words.get("pmi_version", "1")
        known = version in ("1", "2")
        client.answer({
            "cmd": "response_to_init",
            "pmi_version": version if known else "2",
            "pmi_subversion": "1" if version == "1" else "0",
            "rc": "0" if known else "-1",
        })  # fmt: skip
        if known:
            client.version = int(version)

    def _serve_1(self, command: str, words: Mapping[str, str], rank: int) -> dict[str, str]:
        key = words.get("key", "")
        if command == "put":
            self._store(key, words.get("value", ""))
            return {"cmd": "put_result", "rc": "0", "msg": "success"}
        if command == "get":
            value = self._values.get(key)
            if value is None:
                return {"cmd": "get_result", **FAILED, "msg": f"key_{key}_not_found",
                        "value": "unknown"}  # fmt: skip
            return {"cmd": "get_result", "rc": "0", "msg": "success", "value": value}
        size = str(len(self._facts.places))
        answers = {
            "get_maxes": {
                "cmd": "maxes", "kvsname_max": "256", "keylen_max": "64", "vallen_max": "1024",
            },
            "get_appnum": {"cmd": "appnum", "appnum": "0"},
            "get_my_kvsname": {"cmd": "my_kvsname", "kvsname": self._facts.name},
            "get_universe_size": {"cmd": "universe_size", "size": size, "rc": "0"},
            "finalize": {"cmd": "finalize_ack", "rc": "0"},
        }  # fmt: skip
        refused = {"cmd": f"{command}_result", **FAILED, "msg": "unsupported"}
        return answers.get(command, refused)

    def _serve_2(self, command: str, words: Mapping[str, str], rank: int) -> dict[str, str]:
        key, answer = words.get("key", ""), {"cmd": f"{command}-response"}
        size = str(len(self._facts.places))
        if command == "fullinit":
            return {**answer, "rc": "0", "pmi-version": "2", "pmi-subversion": "0",
                    "rank": str(rank), "size": size, "appnum": "0", "debugged": "FALSE",
                    "pmiverbose": "FALSE"}  # fmt: skip
        if command == "job-getid":
            return {**answer, "rc": "0", "jobid": self._facts.name}
        if command == "kvs-put":
            self._store(key, words.get("value", ""))
            return {**answer, "rc": "0"}
        if command == "info-putnodeattr":
            self._put_node_value(key, words.get("value", ""))
            return {**answer, "rc": "0"}
        if command in ("kvs-get", "info-getjobattr"):
            value = size if key == "universeSize" else self._values.get(key)
            return {**answer, "rc": "0", **_found(value)}
        if command == "finalize":
            return {**answer, "rc": "0"}
        return {**answer, **FAILED, "errmsg": _SPAWN}

    def _store(self, key: str, value: str) -> None:
        self._values[key] = self._put[key] = value

    def _put_node_value(self, key: str, value: str) -> None:
        self._node_values[key] = value
        waiting, self._node_waiting = self._node_waiting, []
        for client, wanted in waiting:
            self._get_node_value(client, {"key": wanted, "wait": "TRUE"})

    def _get_node_value(self, client: _Client, words: Mapping[str, str]) -> None:
        key = words.get("key", "")
        if key not in self._node_values and words.get("wait") == "TRUE":
            self._node_waiting.append((client, key))
            return
        answer = {"cmd": "info-getnodeattr-response", "rc": "0"}
        client.answer({**answer, **_found(self._node_values.get(key))})

    def _fence(self, client: _Client) -> None:
        client.fenced = True
        ranks = [rank for rank, place in enumerate(self._facts.places) if place == self._place]
        if all(rank in self._clients and self._clients[rank].fenced for rank in ranks):
            put, self._put = self._put, {}
            self._on_fence(put)

    @property
    def _place(self) -> int:
        return self._facts.places[next(iter(self._clients))]

    def end_fence(self, values: Mapping[str, str]) -> None:
        """Let tasks go on: all nodes have come to the fence, with these values."""
        self._values.update(values)
        for client in self._clients.values():
            if client.fenced:
                client.fenced = False
                client.answer(
                    {"cmd": "barrier_out", "rc": "0"}
                    if client.version == 1
                    else {"cmd": "kvs-fence-response", "rc": "0"}
                )


def _found(value: str | None) -> dict[str, str]:
    return {"found": "FALSE"} if value is None else {"found": "TRUE", "value": value}
