#compdef enroot enroot-py
# @NOTE@

_enroot_containers() {
    local -a names
    names=(${(f)"$(enroot list 2>/dev/null)"})
    compadd -a names
}

_enroot_containers_and_images() {
    _enroot_containers
    _files -g '*.(sqsh|sqfs|squashfs|sfs)'
}

_enroot() {
    local -a commands
    if ((CURRENT == 2)); then
@COMMANDS@
        return
    fi
    shift words
    ((CURRENT--))
    local command=$words[1]
    if [[ $command == (@PATTERN@) ]]; then
        if ((CURRENT > 2)); then
            shift words
            ((CURRENT--))
            command+=" $words[1]"
        fi
    fi
    case $command in
@GROUPS@
@CASES@
    esac
}

if [[ $funcstack[1] == _enroot ]]; then
    _enroot "$@"
else
    compdef _enroot enroot enroot-py
fi
