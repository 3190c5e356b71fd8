#!/bin/sh
# The main job, end to end: build an image, serve it on loopback, import, create, start, exec, export.
# Usage: demo.sh FOLDER, with `enroot` and `python3` in PATH. Everything stays below FOLDER.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
rm -rf "$folder/work"
mkdir -p "$folder/work"
cd "$folder/work"

export ENROOT_DATA_PATH="$folder/work/data" ENROOT_CACHE_PATH="$folder/work/cache"
export ENROOT_RUNTIME_PATH="$folder/work/run" ENROOT_TEMP_PATH="$folder/work"
export ENROOT_CONFIG_PATH="$folder/work/config" ENROOT_ALLOW_HTTP=yes

say() { printf '\n== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

server='' sleeper=''
finish() {
    [ -z "$sleeper" ] || kill "$sleeper" 2>/dev/null || :
    [ -z "$server" ] || kill "$server" 2>/dev/null || :
}
trap finish EXIT
trap 'exit 1' INT TERM

say "Build an image of three layers from this machine's own shell"
run python3 "$here/build_image.py" layout

say "Serve it on loopback"
python3 "$here/serve_layout.py" layout > port & server=$!
tries=0
until [ -s port ]; do
    tries=$((tries + 1)); [ "$tries" -lt 100 ] || { echo "the server did not start" >&2; exit 1; }
    sleep 0.1
done
registry="127.0.0.1:$(cat port)"
echo "http://$registry/v2/"

say "Pull it, flatten its layers and write a squashfs image"
run enroot digest "docker://$registry#demo/app"
run enroot import -o app.sqsh "docker://$registry#demo/app"
run ls -l app.sqsh

say "Unpack it to a container and run its command"
run enroot create -n app app.sqsh
run enroot list
run enroot start app

say "Run something else in it: writable, as root, with a variable and a mount"
mkdir -p data && echo "from the host" > data/note
run enroot start --rw --root -e WORKERS=8 -m "$PWD/data:/data" app \
    sh -c 'id -u; /opt/app/train; cat /data/note; echo 3 > /opt/app/VERSION'

say "Join a running container"
enroot start app sleep 60 & sleeper=$!
tries=0
until enroot exec "$sleeper" true 2> exec.log; do
    tries=$((tries + 1)); [ "$tries" -lt 50 ] || { cat exec.log >&2; exit 1; }
    sleep 0.1
done
run enroot exec "$sleeper" cat /opt/app/VERSION
run enroot list -f
kill "$sleeper"; wait "$sleeper" 2> /dev/null || :
sleeper=''

say "Export the container as an image, and start straight from that"
run enroot export -o changed.sqsh app
run enroot start changed.sqsh cat /opt/app/VERSION
run enroot remove -f app

say "Done: everything is in $folder/work"
