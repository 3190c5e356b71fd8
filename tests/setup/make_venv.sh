#!/bin/sh
# Make (or renew) a virtual environment with this project in it.
# Usage: make_venv.sh FOLDER REQUIREMENT; PYTHON names the interpreter (default python3).
set -eu
folder=$1 requirement=$2 python=${PYTHON:-python3}

if ! "$python" -c 'import ensurepip' 2> /dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        echo "Installing Debian's python3-venv"
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            python3-venv python3-pip > /dev/null
    else
        echo "$python cannot make virtual environments." >&2
        echo "Ask an administrator for: apt-get install python3-venv" >&2
        exit 1
    fi
fi

# A marker that holds what the environment was made from saves making it again.
stamp="$("$python" -c 'import sys; print(sys.version)') $requirement"
if [ "$(cat "$folder/made-from" 2> /dev/null)" != "$stamp" ]; then
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    "$python" -m venv "$folder"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# What is downloaded stays in the folder too, not in the user's home.
PIP_CACHE_DIR=$(cd "$folder" && pwd)/pip-cache
export PIP_CACHE_DIR
"$folder/bin/python" -m pip install -q "$requirement"
# The same version may hold other files now: put the tree's own in, without asking for dependencies.
"$folder/bin/python" -m pip install -q --no-deps --force-reinstall .
printf '%s\n' "$stamp" > "$folder/made-from"
