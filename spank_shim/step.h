/* The plugin in its contexts; each function is the hook of that name there. */
#ifndef PYXIS_STEP_H
#define PYXIS_STEP_H

#include <slurm/spank.h>

/* slurmstepd */
int step_post_opt(spank_t spank, int count, char **words);
int step_user_init(spank_t spank);
int step_task_init(spank_t spank, int count, char **words);
int step_task_post_fork(void);
int step_task_exit(spank_t spank, int count, char **words);
void step_exit(void);

/* srun, sbatch, salloc */
int submit_post_opt(spank_t spank, int count, char **words);

/* slurmd, and its process for a job's end */
int node_init(int count, char **words);
int node_job_epilog(spank_t spank, int count, char **words);

#endif
