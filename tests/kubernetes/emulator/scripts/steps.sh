#!/bin/bash
#SBATCH --job-name=parity
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --time=10
#SBATCH --output=%x-%j.out

# Runs under Slurm and in emulated pods; what it prints is compared. Errors of srun go to errors.txt:
# their words differ, and the statuses do not.
exec 2> errors.txt
say() { printf '== %s\n' "$*"; }
status() { "$@"; printf 'status %s\n' $?; }

say the batch script runs once, on the first node, in the submission directory
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
echo "${#nodes[@]} nodes, on the first: $([ "$SLURMD_NODENAME" = "${nodes[0]}" ] && echo yes)"
echo "in $PWD, image $IN_IMAGE, arguments $# $1"

say variables
env -0 > batch.env
srun bash -c 'env -0 > step.$SLURM_PROCID.env'
srun -N2 -n3 bash -c 'env -0 > narrow.$SLURM_PROCID.env'

say sequential steps see what earlier ones did
srun -N1 -n1 mkdir folder
srun -n4 --ntasks-per-node=1 bash -c 'echo "$SLURM_PROCID" > folder/$SLURM_NODEID'
cat folder/*
srun -l bash -c 'echo "$SLURM_NODEID.$SLURM_LOCALID on $SLURMD_NODENAME"' | sort

say a step in a substitution
first=$(srun -N1 -n1 bash -c 'echo $SLURMD_NODENAME')
third=$(srun -N1 -n1 -w "${nodes[2]}" bash -c 'echo $SLURMD_NODENAME')
echo "$([ "$first" = "${nodes[0]}" ] && echo first) $([ "$third" = "${nodes[2]}" ] && echo third)"
lines=$(srun -n4 --ntasks-per-node=1 echo line)
echo "$lines" | wc -l

say where tasks go
for flags in -n5 "-n5 -N3" "-N2 -n3" "-n6 -m cyclic" "-n6 -m block" "-N2 -n2 -r2" \
             "-N1 -n2 -x ${nodes[0]},${nodes[1]},${nodes[2]}" "-w ${nodes[1]},${nodes[3]} -N2 -n2" \
             "-N3 -n3" "-N3 --ntasks-per-node=2" --ntasks-per-node=1; do
    echo "case $((count += 1))"
    srun $flags bash -c 'echo "$SLURM_PROCID on $SLURMD_NODENAME as $SLURM_NODEID.$SLURM_LOCALID"' |
        sort
done

say host lists
scontrol show hostnames | wc -l
scontrol show hostnames "${nodes[3]},${nodes[0]}"
scontrol show hostlist "${nodes[1]},${nodes[3]},${nodes[2]}"
scontrol show hostlistsorted "${nodes[3]},${nodes[1]},${nodes[2]}"
scontrol show hostnames 'a[1-3,07-08],b-c[0-1],d' | tr '\n' ' '
echo

say steps in the background
srun -N2 -n2 bash -c 'sleep 0.3; echo "late $SLURM_PROCID"' > late.txt & late=$!
srun -N2 -n2 -r2 bash -c 'echo "early $SLURM_PROCID"; exit 5' > early.txt & early=$!
status wait $early
status wait $late
wait
sort late.txt early.txt

say standard input
printf 'one\ntwo\n' | srun -N1 -n1 cat
printf 'all\n' | srun -l cat | sort
printf 'only\n' | srun -l --input=1 cat
srun -l --input=none cat | wc -l
srun -N1 -n1 --input=folder/2 cat

say output files
srun -N4 -n4 --output='out.%t.%n.txt' bash -c 'echo "$SLURM_PROCID"; echo e >&2'
head -n 5 out.*.txt
srun -N1 -n1 --output=o.txt --error=e.txt bash -c 'echo o; echo e >&2'
cat o.txt e.txt
srun -N1 -n1 --open-mode=append --output=o.txt echo again
cat o.txt

say bytes arrive as they were sent
head -c 300000 /dev/zero | tr '\0' x > big
srun -N1 -n1 bash -c 'cat; head -c 70000 /dev/zero; printf "\377\n\r\t"' < big | sha256sum
srun -N1 -n1 printf '%s|' 'a b' '' "c'd" '$HOME' '*' $'two\nlines' 'é'
echo

say several programs
printf '# a comment\n0 echo zero %%t\n1-2 echo task %%t offset %%o\n3 false\n' > programs.conf
status srun -n4 --multi-prog programs.conf | sort

say exit statuses
status srun true
status srun -N1 -n1 bash -c 'exit 7'
status srun bash -c 'exit $((SLURM_PROCID * 3))'
status srun -N1 -n1 no-such-command
status srun -N1 -n1 /etc/passwd
status srun -N1 -n1 bash -c 'kill -TERM $$'
status srun -N1 -n1 bash -c 'kill -KILL $$'
status srun -N1 -n1 bash -c 'kill -SEGV $$'
status srun -n2 bash -c '[ $SLURM_PROCID = 0 ] && exit 3; kill -USR1 $$'
status srun --kill-on-bad-exit=1 bash -c '[ $SLURM_PROCID = 5 ] && exit 9; sleep 60'
status srun --wait=1 bash -c '[ $SLURM_PROCID = 5 ] && exit 0; sleep 60'
status srun -n99 true
status srun -w no-such-node true
status srun --no-such-option true
status srun -n many true
SLURM_EXIT_ERROR=77 status srun --no-such-option true
SLURM_EXIT_ERROR=77 status srun -n99 true

say signals that reach srun reach the step
srun -N2 -n2 bash -c 'trap "echo caught; exit 4" USR1; touch ready.$SLURM_PROCID
    while :; do sleep 0.05; done' &
step=$!
until [ -e ready.0 ] && [ -e ready.1 ]; do sleep 0.05; done
kill -USR1 $step
status wait $step

say SIGTERM to srun
srun -N1 -n1 bash -c 'trap "echo caught; exit 4" TERM; touch ready; while :; do sleep 0.05; done' &
step=$!
until [ -e ready ]; do sleep 0.05; done
kill -TERM $step
status wait $step

say the environment of a step
export OF_THE_BODY='a b'
srun -N1 -n1 bash -c 'echo "$OF_THE_BODY|$IN_IMAGE|$PWD"'
srun -N1 -n1 --export=NONE bash -c 'echo "${OF_THE_BODY-unset}"'
srun -N1 -n1 --export=ALL,MORE=1 bash -c 'echo "$OF_THE_BODY $MORE"'
srun -N1 -n1 --export=MORE=2 bash -c 'echo "${OF_THE_BODY-unset} $MORE"'
SLURM_NTASKS=3 srun -N3 bash -c 'echo $SLURM_NTASKS' | sort

say where steps start
srun -N1 -n1 --chdir=folder pwd
(cd folder && srun -N1 -n1 pwd)
IN_IMAGE=changed srun -N1 -n1 bash -c 'echo $IN_IMAGE'

say what the job is
squeue -h -j $SLURM_JOB_ID -o '%T %D %u' | sed "s/$USER/user/"
[ -n "$(squeue -h -j $SLURM_JOB_ID -o %L)" ] && echo time left
scontrol show job $SLURM_JOB_ID | grep -o 'JobState=[A-Z]*'

say a rendezvous as torchrun makes it
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((21000 + SLURM_JOB_ID % 10000))
srun -N4 -n4 --kill-on-bad-exit=1 bash -c '
    python3 rendezvous.py --nnodes=$SLURM_NNODES --nproc-per-node=2 --node-rank=$SLURM_NODEID \
        --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT' | sort

say an MPI program
status mpirun ring | sort
status mpirun -n 2 bash -c 'exit 6' | tail -n 1

say the end
exit 3
