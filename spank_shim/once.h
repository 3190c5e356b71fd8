/* What the tasks of a step on this node share, so that one of them starts the container for all. */
#ifndef PYXIS_ONCE_H
#define PYXIS_ONCE_H

#include <stdbool.h>
#include <sys/types.h>

struct meeting;

/* Shared memory with a mutex that survives the death of who holds it; NULL with errno set. */
struct meeting *meeting_create(void);
void meeting_destroy(struct meeting *meeting);

enum turn {
	TURN_FIRST,  /* nobody has started the container: do so, then call meeting_leave */
	TURN_LATER,  /* it was tried; the answer is there, or never will be */
	TURN_FAILED, /* whoever was at it has died; or there is no mutex */
};

/* Wait for one's turn. Unless it failed, meeting_leave has to follow. */
enum turn meeting_enter(struct meeting *meeting);
void meeting_leave(struct meeting *meeting);

/* Count a task as having joined. */
void meeting_join(struct meeting *meeting);
unsigned meeting_joined(const struct meeting *meeting);

/* Count a task as through, whether it has joined or not; true for the last of `tasks`. */
bool meeting_pass(struct meeting *meeting, unsigned tasks);

/* Count a task as ended; true for the last of `tasks`. */
bool meeting_end(struct meeting *meeting, unsigned tasks);

#endif
