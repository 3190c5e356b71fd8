# @NOTE@

# Options that take a value.
set -g __enroot_valued \
@VALUED@

function __enroot_words
    # The words before the cursor: the command in one, then the rest.
    set -l words (commandline -opc)
    set -e words[1]
    if set -q words[2]; and contains -- $words[1] @GROUPS@
        echo "$words[1] $words[2]"
        set -e words[1..2]
    else if set -q words[1]
        echo $words[1]
        set -e words[1]
    end
    if set -q words[1]
        printf '%s\n' $words
    end
end

function __enroot_at
    # Whether the next word belongs to this group of commands ("" for the first word).
    set -l words (commandline -opc)
    if test -z "$argv[1]"
        test (count $words) -eq 1
    else
        test (count $words) -eq 2; and test "$words[2]" = $argv[1]
    end
end

function __enroot_operand
    # Whether the next word is this operand of the command, or an option before the first one.
    # Usage: __enroot_operand COMMAND NUMBER [more]
    set -l words (__enroot_words)
    test "$words[1]" = "$argv[1]"; or return 1
    set -l operands 0
    set -l ended no
    set -l skip no
    for word in $words[2..-1]
        if test $skip = yes
            set skip no
        else if test $ended = yes; or not string match -q -- '-?*' $word
            set ended yes
            set operands (math $operands + 1)
        else if test $word = --
            set ended yes
        else if contains -- "$argv[1] $word" $__enroot_valued
            set skip yes
        end
    end
    set -l next (math $operands + 1)
    test $next -eq $argv[2]; or test -n "$argv[3]" -a $next -gt $argv[2]
end

complete -c enroot-py -w enroot
complete -c enroot -f
