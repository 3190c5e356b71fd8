/* Things that end with the block that they were made in. */
#ifndef PYXIS_CLEANUP_H
#define PYXIS_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void cleanup_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO_CLOSE __attribute__((cleanup(cleanup_close)))

/* Close a descriptor that outlives a block, and forget it. */
static inline void close_and_forget(int *fd)
{
	cleanup_close(fd);
	*fd = -1;
}

#endif
