# @NOTE@

declare -gA _enroot_words=(
@WORDS@
)
declare -gA _enroot_options=(
@OPTIONS@
)
# What the value of an option is.
declare -gA _enroot_values=(
@VALUES@
)
# What each operand is; the last one repeats.
declare -gA _enroot_operands=(
@OPERANDS@
)

# Offer what a kind of value can be. Usage: _enroot_offer KIND WORD
_enroot_offer()
{
    local kind=$1 word=$2
    case $kind in
    container*)
        COMPREPLY+=($(compgen -W "$(enroot list 2>/dev/null)" -- "$word"))
        ;;&
    *image)
        compopt -o filenames 2>/dev/null
        local IFS=$'\n'
        local name
        for name in $(compgen -f -- "$word"); do
            [[ -d $name ]] && COMPREPLY+=("$name")
            case $name in
            *.sqsh | *.sqfs | *.squashfs | *.sfs) COMPREPLY+=("$name") ;;
            esac
        done
        ;;
    file)
        compopt -o filenames 2>/dev/null
        local IFS=$'\n'
        COMPREPLY+=($(compgen -f -- "$word"))
        ;;
    folder)
        compopt -o filenames 2>/dev/null
        local IFS=$'\n'
        COMPREPLY+=($(compgen -d -- "$word"))
        ;;
    command)
        COMPREPLY+=($(compgen -c -- "$word"))
        ;;
    arch)
        COMPREPLY+=($(compgen -W "@ARCH@" -- "$word"))
        ;;
    shell)
        COMPREPLY+=($(compgen -W "@SHELL@" -- "$word"))
        ;;
    name)
        COMPREPLY+=($(compgen -W "@NAME@" -- "$word"))
        ;;
    esac
}

_enroot()
{
    COMPREPLY=()
    # Readline splits `--option=value` at the equals sign: put it together again.
    local words=() word index
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ $word == = && ${words[-1]} == --* ]]; then
            words[-1]+==
        elif [[ $index -gt 0 && ${COMP_WORDS[index - 1]} == = && ${words[-1]} == --*= ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    local last=$((${#words[@]} - 1)) command=${words[1]} at=2
    word=${words[last]}
    if ((last == 1)); then
        COMPREPLY=($(compgen -W "${_enroot_words[-]}" -- "$word"))
        return
    fi
    if [[ -n ${_enroot_words[$command]} ]]; then
        if ((last == 2)); then
            COMPREPLY=($(compgen -W "${_enroot_words[$command]}" -- "$word"))
            return
        fi
        command+=" ${words[2]}" at=3
    fi
    [[ -n ${_enroot_options[$command]} ]] || return

    # Find where the operands begin.
    for ((index = at; index < last; index++)); do
        if [[ ${words[index]} == -- ]]; then
            ((index++))
            break
        elif [[ ${words[index]} != -?* ]]; then
            break
        elif [[ -n ${_enroot_values["$command ${words[index]}"]} ]]; then
            if ((index + 1 == last)); then
                _enroot_offer "${_enroot_values["$command ${words[index]}"]}" "$word"
                return
            fi
            ((index++))
        fi
    done
    if ((index == last)) && [[ ${words[last - 1]} != -- && $word == --*=* ]]; then
        _enroot_offer "${_enroot_values["$command ${word%%=*}"]}" "${word#*=}"
    elif ((index == last)) && [[ ${words[last - 1]} != -- && $word == -* ]]; then
        COMPREPLY=($(compgen -W "${_enroot_options[$command]}" -- "$word"))
    else
        local kinds=(${_enroot_operands[$command]})
        local which=$((last - index))
        ((which < ${#kinds[@]})) || which=$((${#kinds[@]} - 1))
        _enroot_offer "${kinds[which]}" "$word"
    fi
}

complete -F _enroot enroot enroot-py
