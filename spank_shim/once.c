#include "once.h"

#include <errno.h>
#include <pthread.h>
#include <slurm/spank.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

struct meeting {
	pthread_mutex_t mutex;
	bool begun;  /* under the mutex */
	bool broken; /* under the mutex */
	atomic_uint joined;
	atomic_uint passed;
	atomic_uint ended;
};

static int make_mutex(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;
	int error = pthread_mutexattr_init(&attributes);

	if (error == 0)
		error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (error == 0)
		error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (error == 0)
		error = pthread_mutex_init(mutex, &attributes);
	(void)pthread_mutexattr_destroy(&attributes);
	return error;
}

struct meeting *meeting_create(void)
{
	struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int error;

	if (meeting == MAP_FAILED)
		return NULL;
	error = make_mutex(&meeting->mutex);
	if (error != 0) {
		(void)munmap(meeting, sizeof(*meeting));
		errno = error;
		return NULL;
	}
	return meeting;
}

void meeting_destroy(struct meeting *meeting)
{
	/* No pthread_mutex_destroy: a killed task may still be its owner, which is undefined then. */
	if (meeting != NULL)
		(void)munmap(meeting, sizeof(*meeting));
}

enum turn meeting_enter(struct meeting *meeting)
{
	int error = pthread_mutex_lock(&meeting->mutex);

	if (error == EOWNERDEAD) {
		(void)pthread_mutex_consistent(&meeting->mutex);
		meeting->broken = true;
	} else if (error != 0) {
		slurm_error("pyxis: cannot wait for the container: %s", strerror(error));
		return TURN_FAILED;
	}
	if (meeting->broken) {
		slurm_error("pyxis: a task of this step was killed while it started the container");
		meeting_leave(meeting);
		return TURN_FAILED;
	}
	if (meeting->begun)
		return TURN_LATER;
	meeting->begun = true;
	return TURN_FIRST;
}

void meeting_leave(struct meeting *meeting)
{
	(void)pthread_mutex_unlock(&meeting->mutex);
}

void meeting_join(struct meeting *meeting)
{
	atomic_fetch_add(&meeting->joined, 1);
}

unsigned meeting_joined(const struct meeting *meeting)
{
	return atomic_load(&meeting->joined);
}

bool meeting_pass(struct meeting *meeting, unsigned tasks)
{
	return atomic_fetch_add(&meeting->passed, 1) + 1 == tasks;
}

bool meeting_end(struct meeting *meeting, unsigned tasks)
{
	return atomic_fetch_add(&meeting->ended, 1) + 1 == tasks;
}
