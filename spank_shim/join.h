/* Move this task into the container that an answer describes. */
#ifndef PYXIS_JOIN_H
#define PYXIS_JOIN_H

#include <slurm/spank.h>

#include "records.h"

/* Returns 0, or -1 after an error was printed: the task must not run then. */
int join_container(spank_t spank, const struct answer *answer);

#endif
