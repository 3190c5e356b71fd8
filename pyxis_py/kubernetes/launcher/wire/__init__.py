"""Bytes between the processes of a job: the loop, connections, messages and streams."""
