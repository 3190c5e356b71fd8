# Functions for hooks and configuration scripts written in bash:
#
#     source "${ENROOT_LIBRARY_PATH}/common.sh"
#
# They have the names and the meaning of enroot's own, so that hooks written for it go on working.

if [ -n "${_COMMON_SH_-}" ]; then
    return 0
fi
readonly _COMMON_SH_=1

# Colours are for terminals only. TTY_ON or TTY_OFF is set, whichever holds.
if [ -t 2 ]; then
    readonly TTY_ON=y
    readonly clr=$'\e[0m' bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' blue=$'\e[94m'
else
    readonly TTY_OFF=y
fi

# fmt COLOUR TEXT: print the text in a colour (by its variable's name), without a line feed.
common::fmt() {
    printf "%s%s%s" "${!1-}" "$2" "${clr-}"
}

# log [LEVEL [TEXT|- [NL]]]: print a message to standard error; "-" takes its lines from standard
# input, as far as there are any at once. NL, or no argument, adds an empty line on a terminal.
common::log() {
    local mark="" line=""

    case "${1-}" in
    INFO) mark=$(common::fmt blue "[INFO]") ;;
    WARN) mark=$(common::fmt yellow "[WARN]") ;;
    ERROR) mark=$(common::fmt red "[ERROR]") ;;
    esac
    if [ "${2-}" = "-" ]; then
        while IFS= read -r -t 0.01 line; do
            printf "%s %b\n" "${mark}" "${line}" >&2
        done
    elif [ -n "${2-}" ]; then
        printf "%s %b\n" "${mark}" "$2" >&2
    fi
    if [ -n "${TTY_ON-}" ] && { [ $# -eq 0 ] || [ "${3-}" = "NL" ]; }; then
        printf "\n" >&2
    fi
}

# err TEXT: print an error and end the script with status 1.
common::err() {
    common::log ERROR "$1"
    exit 1
}

# rmall PATH: remove a folder, also where its permissions are in the way; other file systems stay.
common::rmall() {
    local -r rmall_flags=(--recursive --force --one-file-system --preserve-root)

    if ! rm "${rmall_flags[@]}" -- "$1" 2> /dev/null; then
        chmod --silent --recursive u+rwX -- "$1" || :
        rm "${rmall_flags[@]}" -- "$1"
    fi
}

# mktmpdir PREFIX: create a private folder under ENROOT_TEMP_PATH and print its path.
common::mktmpdir() {
    umask 077
    mktemp --directory "${ENROOT_TEMP_PATH:-${TMPDIR:-/tmp}}/$1.XXXXXXXXXX"
}

# read ARGUMENTS: `read` that does not fail at the end of input.
common::read() {
    read "$@" || :
}

# readstrarray NAME TEXT: set the array NAME to the lines of a text; an empty text leaves it alone.
common::readstrarray() {
    if [ -n "$2" ]; then
        readarray -t "$1" <<< "$2"
    fi
}

# chdir PATH: change the working directory, or end the script.
common::chdir() {
    cd -- "$1" 2> /dev/null || common::err "Cannot change to the folder: $1"
}

# curl ARGUMENTS: run curl, body to standard output; an HTTP error status ends the script, except
# those listed in CURL_IGNORE. The last argument is the URL.
common::curl() {
    local curl_body="" curl_code=0 curl_status=0

    curl_body=$(mktemp)
    curl_code=$(curl --output "${curl_body}" --write-out "%{http_code}" "$@") || curl_status=$?
    cat -- "${curl_body}"
    rm --force -- "${curl_body}"
    if [[ "${curl_code}" =~ ^[45][0-9][0-9]$ ]] && [[ " ${CURL_IGNORE-} " != *" ${curl_code} "* ]]; then
        common::err "${*: -1} answered with HTTP status ${curl_code}"
    fi
    [[ " ${CURL_IGNORE-} " == *" ${curl_code} "* ]] || return "${curl_status}"
}

# jq ARGUMENTS: run jq, or end the script.
common::jq() {
    jq "$@" 2> /dev/null || common::err "Cannot read the JSON input"
}

# realpath PATH: print the path with all links resolved, without a line feed, or end the script.
common::realpath() {
    local real=""

    real=$(readlink --canonicalize -- "$1" 2> /dev/null) || common::err "No such file or folder: $1"
    printf "%s" "${real}"
}

# envsubst FILE: print a file with each ${NAME} replaced by the exported variable, or by nothing.
common::envsubst() {
    local line="" name="" head=""
    local -r pattern='^([^$]*(\$[^{$][^$]*|\$\{[^A-Za-z_][^$]*|\$)*)\$\{([A-Za-z_][A-Za-z0-9_]*)\}(.*)$'

    [ -f "$1" ] || return 0
    while IFS= read -r line || [ -n "${line}" ]; do
        while [[ "${line}" =~ ${pattern} ]]; do
            head=${BASH_REMATCH[1]} name=${BASH_REMATCH[3]} line=${BASH_REMATCH[4]}
            printf "%s" "${head}"
            if [[ "$(declare -p "${name}" 2> /dev/null)" =~ ^declare\ -[A-Za-z]*x ]]; then
                printf "%s" "${!name-}"
            fi
        done
        printf "%s\n" "${line}"
    done < "$1"
}

# evalnetrc FILE: print a credentials file with passwords that are $VARIABLE or $(command) evaluated.
common::evalnetrc() {
    local line="" words=""

    [ -f "$1" ] || return 0
    while IFS= read -r line || [ -n "${line}" ]; do
        read -r -a words <<< "${line}"
        if [ "${#words[@]}" -ge 6 ] && [[ "${words[5]}" == \$* ]]; then
            printf "%s " "${words[@]:0:5}"
            eval "echo ${words[*]:5}"
        else
            printf "%s\n" "${line}"
        fi
    done < "$1"
}

# envfmt FILE: clean an environment file in place: no comments, nothing that is not NAME=value, no
# ENROOT_ names, no quotes around values.
common::envfmt() {
    sed --in-place --regexp-extended \
        -e 's/^[[:space:]]+//' \
        -e '/^[A-Za-z_][A-Za-z0-9_]*=/!d' \
        -e '/^ENROOT_/d' \
        -e "s/^([A-Za-z_][A-Za-z0-9_]*)=[\"'](.*)[\"'][[:space:]]*\$/\1=\2/" \
        "$1"
}

# runparts list|exec SUFFIX FOLDER: print, or execute in turn, a folder's files of that suffix.
common::runparts() {
    local part=""

    for part in "$3"/*"$2"; do
        [ -e "${part}" ] || continue
        if [ "$1" = "list" ]; then
            printf "%s\n" "${part}"
        elif [ "$1" = "exec" ] && [ -x "${part}" ]; then
            "${part}" || common::err "${part} failed: it exited with status $?"
        fi
    done
}

# checkcmd NAME...: end the script unless all these commands exist.
common::checkcmd() {
    local name=""

    for name in "$@"; do
        command -v "${name}" > /dev/null || common::err "Command not found: ${name}"
    done
}

# fixperms PATH: let the owner read everything below a path, and write to its folders.
common::fixperms() {
    chmod --silent --recursive u+rX -- "$1" || :
    find "$1" -maxdepth 15 -type d ! -perm -u=w -exec chmod --silent u+w {} + || :
}

# getpwent, getgrent: print the entry of the user, or of his group, in the host's database; inside a
# user namespace too, where `id` may tell otherwise.
common::getpwent() {
    local ignored="" outside=""

    read -r ignored outside ignored < /proc/self/uid_map
    if [ "${ignored:-0}" = 4294967295 ]; then
        outside=$(id --user)
    fi
    getent passwd "${outside}"
}

common::getgrent() {
    local ignored="" outside=""

    read -r ignored outside ignored < /proc/self/gid_map
    if [ "${ignored:-0}" = 4294967295 ]; then
        outside=$(id --group)
    fi
    getent group "${outside}"
}

# debarch MACHINE: print Debian's name of an architecture that `uname -m` names.
common::debarch() {
    case "$1" in
    x86_64) printf "amd64" ;;
    aarch64) printf "arm64" ;;
    ppc64le) printf "ppc64le" ;;
    *) common::err "Unsupported architecture: $1" ;;
    esac
}

# mountpoint PATH: print the mount point that a path lies under.
common::mountpoint() {
    local folder=""

    folder=$(common::realpath "$1")
    while [ -n "${folder}" ] && ! mountpoint --quiet -- "${folder}"; do
        folder=${folder%/*}
    done
    printf "%s" "${folder:-/}"
}
