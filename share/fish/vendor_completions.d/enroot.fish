# Made by `enroot completion fish` from its command table.

# Options that take a value.
set -g __enroot_valued \
    'bundle -d' \
    'bundle --desc' \
    'bundle -o' \
    'bundle --output' \
    'bundle -t' \
    'bundle --target' \
    'create -n' \
    'create --name' \
    'digest -a' \
    'digest --arch' \
    'exec -e' \
    'exec --env' \
    'exec --preserve-fds' \
    'export -o' \
    'export --output' \
    'import -a' \
    'import --arch' \
    'import -o' \
    'import --output' \
    'load -a' \
    'load --arch' \
    'load -n' \
    'load --name' \
    'start -c' \
    'start --conf' \
    'start -e' \
    'start --env' \
    'start --rc' \
    'start -m' \
    'start --mount' \
    'start --gpus' \
    'start --device' \
    'start --preserve-fds' \
    'gpu plan --gpus' \
    'gpu plan --device' \
    'gpu plan -e' \
    'gpu plan --env' \
    'cdi generate --capabilities' \
    'cdi generate --hook' \
    'man -o' \
    'man --output'

function __enroot_words
    # The words before the cursor: the command in one, then the rest.
    set -l words (commandline -opc)
    set -e words[1]
    if set -q words[2]; and contains -- $words[1] cache gpu cdi
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

complete -c enroot -n '__enroot_at ""' -a batch -d 'Start the container that a configuration script names'
complete -c enroot -n '__enroot_at ""' -a bundle -d 'Make a program out of an image, which starts it on another machine'
complete -c enroot -n '__enroot_at ""' -a create -d 'Make a container root filesystem out of an image'
complete -c enroot -n '__enroot_at ""' -a digest -d 'Print the digest of an image in a registry'
complete -c enroot -n '__enroot_at ""' -a exec -d 'Run a command in a container that is running'
complete -c enroot -n '__enroot_at ""' -a export -d 'Make an image out of a container root filesystem'
complete -c enroot -n '__enroot_at ""' -a import -d 'Fetch an image and write it to a file'
complete -c enroot -n '__enroot_at ""' -a list -d 'List the container root filesystems'
complete -c enroot -n '__enroot_at ""' -a load -d 'Fetch an image and make a container root filesystem out of it'
complete -c enroot -n '__enroot_at ""' -a remove -d 'Delete container root filesystems'
complete -c enroot -n '__enroot_at ""' -a start -d 'Start a container, and a command in it'
complete -c enroot -n '__enroot_at ""' -a info -d 'Show the configuration in force, or what an image or container is made of'
complete -c enroot -n '__enroot_at ""' -a doctor -d 'Check this machine, and say how to mend what is wrong'
complete -c enroot -n '__enroot_at ""' -a cache -d 'Show and trim the cache'
complete -c enroot -n '__enroot_at ""' -a gpu -d 'Look at GPUs and fabrics'
complete -c enroot -n '__enroot_at ""' -a cdi -d 'Describe this machine to other container programs'
complete -c enroot -n '__enroot_at ""' -a completion -d 'Print the completion script for bash, zsh or fish'
complete -c enroot -n '__enroot_at ""' -a man -d 'Print the manual page of a command, or write all of them'
complete -c enroot -n '__enroot_at ""' -a help -d 'Show the commands, or the options of one'
complete -c enroot -n '__enroot_at ""' -a version -d 'Print the version of Enroot that this one equals'
complete -c enroot -n '__enroot_at '\''cache'\''' -a list -d 'List what the cache holds, the least recently used first'
complete -c enroot -n '__enroot_at '\''cache'\''' -a prune -d 'Delete what nothing uses from the cache'
complete -c enroot -n '__enroot_at '\''cache'\''' -a limit -d 'Shrink the cache to SIZE, least recently used first'
complete -c enroot -n '__enroot_at '\''gpu'\''' -a list -d 'List the accelerators and fabric devices of this machine'
complete -c enroot -n '__enroot_at '\''gpu'\''' -a plan -d 'Show what of the GPUs and their driver a container would get, and why'
complete -c enroot -n '__enroot_at '\''cdi'\''' -a generate -d 'Print a CDI specification of this machine'\''s GPUs, for other container programs'
complete -c enroot -n '__enroot_operand '\''batch'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''batch'\'' 1' -F
complete -c enroot -n '__enroot_operand '\''batch'\'' 2' -a '(__fish_complete_command)'
complete -c enroot -n '__enroot_operand '\''batch'\'' 3 more' -F
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s a -l all -d 'Put the user'\''s own configuration in as well'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s c -l checksum -d 'Let the program check itself when it starts'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s d -l desc -x -d 'Say what the program is'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s o -l output -r -F -d 'The file to write (default: IMAGE.run)'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s t -l target -x -a '(__fish_complete_directories)' -d 'Folder that the program'\''s --keep unpacks to (default: ./BUNDLE)'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s f -l force -d 'Replace a file of that name'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''bundle'\'' 1' -F
complete -c enroot -n '__enroot_operand '\''create'\'' 1' -s n -l name -x -d 'Name of the container (default: IMAGE'\''s)'
complete -c enroot -n '__enroot_operand '\''create'\'' 1' -s f -l force -d 'Replace a root filesystem of that name'
complete -c enroot -n '__enroot_operand '\''create'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''create'\'' 1' -F
complete -c enroot -n '__enroot_operand '\''digest'\'' 1' -s a -l arch -x -a 'x86_64 aarch64 ppc64le amd64 arm64' -d 'Architecture of the image (default: the host'\''s)'
complete -c enroot -n '__enroot_operand '\''digest'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''exec'\'' 1' -s e -l env -x -d 'Set a variable in the container; without VAL, to its value here'
complete -c enroot -n '__enroot_operand '\''exec'\'' 1' -l preserve-fds -x -d 'Pass on the N descriptors from 3 upwards'
complete -c enroot -n '__enroot_operand '\''exec'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''exec'\'' 1' -a '(enroot list 2>/dev/null)'
complete -c enroot -n '__enroot_operand '\''exec'\'' 2' -a '(__fish_complete_command)'
complete -c enroot -n '__enroot_operand '\''exec'\'' 3 more' -F
complete -c enroot -n '__enroot_operand '\''export'\'' 1' -s o -l output -r -F -d 'The file to write (default: NAME.sqsh)'
complete -c enroot -n '__enroot_operand '\''export'\'' 1' -s f -l force -d 'Replace a file of that name'
complete -c enroot -n '__enroot_operand '\''export'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''export'\'' 1' -a '(enroot list 2>/dev/null)'
complete -c enroot -n '__enroot_operand '\''import'\'' 1' -s a -l arch -x -a 'x86_64 aarch64 ppc64le amd64 arm64' -d 'Architecture of the image (default: the host'\''s)'
complete -c enroot -n '__enroot_operand '\''import'\'' 1' -s o -l output -r -F -d 'The file to write (default: URI'\''s name .sqsh)'
complete -c enroot -n '__enroot_operand '\''import'\'' 1' -s f -l force -d 'Replace a file of that name'
complete -c enroot -n '__enroot_operand '\''import'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''list'\'' 1' -s f -l fancy -d 'Show the processes that run in them, as a table'
complete -c enroot -n '__enroot_operand '\''list'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''list'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''load'\'' 1' -s a -l arch -x -a 'x86_64 aarch64 ppc64le amd64 arm64' -d 'Architecture of the image (default: the host'\''s)'
complete -c enroot -n '__enroot_operand '\''load'\'' 1' -s n -l name -x -d 'Name of the container (default: URI'\''s)'
complete -c enroot -n '__enroot_operand '\''load'\'' 1' -s f -l force -d 'Replace a root filesystem of that name'
complete -c enroot -n '__enroot_operand '\''load'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''remove'\'' 1' -s f -l force -d 'Do not ask first'
complete -c enroot -n '__enroot_operand '\''remove'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''remove'\'' 1 more' -a '(enroot list 2>/dev/null)'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -s c -l conf -r -F -d 'Run this configuration script first'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -s e -l env -x -d 'Set a variable in the container; without VAL, to its value here'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l rc -r -F -d 'Use SCRIPT in place of the image'\''s /etc/rc'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -s r -l root -d 'Be root inside, without any right outside'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -s w -l rw -d 'Make the root filesystem writable'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -s m -l mount -r -F -d 'Mount something of the host inside: SRC[:DST[:OPTIONS]] or an fstab line with colons'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l pid -d 'Use a process namespace of its own'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l net -d 'Use a network namespace of its own, with loopback alone'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l ipc -d 'Use an IPC namespace of its own, and a small /dev'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l uts -d 'Use a host name of its own'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l gpus -x -d 'GPUs to put in: all, none, a number, or indexes and UUIDs'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l device -x -d 'CDI device to put in: VENDOR/CLASS=NAME'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l preserve-fds -x -d 'Pass on the N descriptors from 3 upwards'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -l dry-run -d 'Print what would be done, and do nothing'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''start'\'' 1' -a '(enroot list 2>/dev/null)' -F
complete -c enroot -n '__enroot_operand '\''start'\'' 2' -a '(__fish_complete_command)'
complete -c enroot -n '__enroot_operand '\''start'\'' 3 more' -F
complete -c enroot -n '__enroot_operand '\''info'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''info'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''info'\'' 1' -a '(enroot list 2>/dev/null)' -F
complete -c enroot -n '__enroot_operand '\''doctor'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''doctor'\'' 1' -l offline -d 'Ask no registry'
complete -c enroot -n '__enroot_operand '\''doctor'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''cache list'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''cache list'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''cache prune'\'' 1' -l nvidia -d 'And all that NVIDIA'\''s Enroot keeps there'
complete -c enroot -n '__enroot_operand '\''cache prune'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''cache limit'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''gpu list'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''gpu list'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''gpu plan'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''gpu plan'\'' 1' -l gpus -x -d 'GPUs to put in: all, none, a number, or indexes and UUIDs'
complete -c enroot -n '__enroot_operand '\''gpu plan'\'' 1' -l device -x -d 'CDI device to put in: VENDOR/CLASS=NAME'
complete -c enroot -n '__enroot_operand '\''gpu plan'\'' 1' -s e -l env -x -d 'Set a variable in the container; without VAL, to its value here'
complete -c enroot -n '__enroot_operand '\''gpu plan'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''gpu plan'\'' 1' -a '(enroot list 2>/dev/null)'
complete -c enroot -n '__enroot_operand '\''cdi generate'\'' 1' -l json -d 'Print JSON, for programs'
complete -c enroot -n '__enroot_operand '\''cdi generate'\'' 1' -l capabilities -x -d 'Driver capabilities to put in (default: all)'
complete -c enroot -n '__enroot_operand '\''cdi generate'\'' 1' -l hook -r -F -d 'Path of nvidia-cdi-hook, or none (default: the one installed)'
complete -c enroot -n '__enroot_operand '\''cdi generate'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''completion'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''completion'\'' 1' -a 'bash zsh fish'
complete -c enroot -n '__enroot_operand '\''man'\'' 1' -s o -l output -x -a '(__fish_complete_directories)' -d 'Write every page to this folder'
complete -c enroot -n '__enroot_operand '\''man'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''man'\'' 1' -a 'batch bundle create digest exec export import list load remove start info doctor cache gpu cdi completion man help version'
complete -c enroot -n '__enroot_operand '\''help'\'' 1' -s h -l help -d 'Show the usage'
complete -c enroot -n '__enroot_operand '\''help'\'' 1 more' -a 'batch bundle create digest exec export import list load remove start info doctor cache gpu cdi completion man help version'
complete -c enroot -n '__enroot_operand '\''version'\'' 1' -s h -l help -d 'Show the usage'
