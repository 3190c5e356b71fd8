#!/bin/sh
# Prepare a Debian machine for the tests. Run as root; repeated runs change nothing.
#
# Installs: the packages of packages.txt that are missing; the ordinary user `pyxis-test`; below
# /opt/pyxis-enroot-test a copy of this tree, virtual environments and the test results.
# Sets /dev/fuse to mode 0666, which is the Debian default that some virtual machines lack.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
base=/opt/pyxis-enroot-test
user=pyxis-test

if [ "$(id -u)" != 0 ]; then
    if command -v sudo > /dev/null; then
        exec sudo -- "$0" "$@"
    fi
    echo "make test installs Debian packages and makes a user: run it as root (or install sudo)." >&2
    exit 1
fi

say() { printf '== %s\n' "$*"; }

missing=''
while read -r package; do
    case "$package" in '' | '#'*) continue ;; esac
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || :)
    [ "$state" = installed ] || missing="$missing $package"
done < "$here/packages.txt"
if [ -n "$missing" ]; then
    say "Installing Debian packages:$missing"
    apt-get -qq update
    # Services must not start by themselves: the tests start their own, on ports of their own.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=''; else printf '#!/bin/sh\nexit 101\n' > "$policy"; fi
    [ -z "$policy" ] || chmod 755 "$policy"
    status=0
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing \
        > /dev/null || status=$?
    [ -z "$policy" ] || rm -f "$policy"
    [ "$status" = 0 ] || exit "$status"
fi

if ! id "$user" > /dev/null 2>&1; then
    say "Making the user $user"
    useradd --create-home --shell /bin/sh "$user"
fi

[ ! -e /dev/fuse ] || chmod 0666 /dev/fuse

say "Copying the tree to $base/src"
mkdir -p "$base/results" "$base/debs"
chmod 755 "$base"
rm -rf "$base/src"
mkdir "$base/src"
if git -C "$tree" rev-parse --git-dir > /dev/null 2>&1; then
    # What git knows and what is new in the work tree, but nothing that it ignores.
    (cd "$tree" && git ls-files -z --cached --others --exclude-standard) > "$base/files"
    (cd "$tree" && tar --null --files-from="$base/files" --ignore-failed-read -cf - 2> /dev/null) \
        | tar -C "$base/src" -xf -
    rm -f "$base/files"
else
    (cd "$tree" && tar --exclude=./.demo --exclude=./.venv -cf - .) | tar -C "$base/src" -xf -
fi
chown -R "$user:" "$base/src" "$base/results" "$base/debs"

say "Making virtual environments in $base"
(cd "$base/src" && PYTHON=/usr/bin/python3 tests/setup/make_venv.sh "$base/venv" '.[test]')
# Building left its own folders behind, owned by root.
rm -rf "$base/src/build" "$base/src"/*.egg-info
