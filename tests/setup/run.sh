#!/bin/sh
# Run the test groups one after the other; needs prepare.sh to have run.
# Usage: run.sh short|soak|bench
set -eu
if [ "$(id -u)" != 0 ]; then
    exec sudo -- "$0" "$@"
fi
cd /opt/pyxis-enroot-test/src
exec /opt/pyxis-enroot-test/venv/bin/python tests/setup/groups.py "$@"
