/* The flags as they were given, raw; what they mean is the keeper's business. */
#ifndef PYXIS_OPTIONS_H
#define PYXIS_OPTIONS_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "records.h"

/* Make every flag of options_table.h known to srun, sbatch, salloc or slurmstepd. */
int options_register(spank_t spank);

/* Whether a flag was given, or a variable that stands for one is in the environment. */
bool options_any(spank_t spank);

/*
 * Whether nothing about the flags can be wrong, and nothing has to be asked, as far as can be told
 * before the nodes see them: an image's path, not one of a registry, or a container's name, and each
 * further flag once and in its plainest form. What is not plain may be right as well.
 */
bool options_plain(spank_t spank);

/* Add the flags to a request, in the order given. */
void options_add(struct request *request);

/*
 * Keep in the environment what Slurm does not pass on: it hands over one value of each flag, the
 * last. Called where the command line was read.
 */
int options_keep_repeated(void);

/*
 * Begin with the flags of a further component of a heterogeneous step or job: Slurm hands the flags
 * of plugins to all alike. Returns whether the components so far have the same flags, or have theirs
 * in the environment, where the nodes find them.
 */
bool options_next_component(void);

void options_free(void);

#endif
