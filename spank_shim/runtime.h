/* Root's part of the runtime folder: it and the users' folders in it, and a note for every job. */
#ifndef PYXIS_RUNTIME_H
#define PYXIS_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The site's runtime folder, from the words behind the plugin. */
const char *runtime_path(int count, char **words);

/* Make the folder itself; its parent has to exist. All return 0, or -1 after an error. */
int runtime_make(const char *path);

/* Make a user's folder in it, his alone, and leave a note that the job has had a container here. */
int runtime_prepare(const char *path, uid_t uid, gid_t gid, uint32_t job);

/* Remove a job's note; returns whether there was one. */
bool runtime_forget(const char *path, uint32_t job);

#endif
