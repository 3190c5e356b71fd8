#include "join.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "seccomp_filter.h"

#ifndef SECCOMP_FILTER_FLAG_SPEC_ALLOW
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW 4
#endif

static const struct {
	const char *name;
	int kind;
} namespaces[] = {
	{ "user", CLONE_NEWUSER }, { "cgroup", CLONE_NEWCGROUP }, { "mnt", CLONE_NEWNS },
	{ "ipc", CLONE_NEWIPC },   { "uts", CLONE_NEWUTS },	  { "net", CLONE_NEWNET },
};

#define NAMESPACES (sizeof(namespaces) / sizeof(namespaces[0]))

/* Namespaces to join, in order. */
struct joins {
	int fds[NAMESPACES];
	size_t which[NAMESPACES];
	size_t count;
};

static void joins_close(struct joins *joins)
{
	for (size_t i = 0; i < joins->count; ++i)
		close(joins->fds[i]);
}

static bool is_own(int fd, const char *name)
{
	char path[32];
	struct stat theirs, ours;

	(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return fstat(fd, &theirs) == 0 && stat(path, &ours) == 0 &&
	       theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
}

static int open_one(struct joins *joins, pid_t pid, const char *name)
{
	char path[48];
	size_t i = 0;
	int fd;

	while (i < NAMESPACES && strcmp(namespaces[i].name, name) != 0)
		++i;
	if (i == NAMESPACES || joins->count == NAMESPACES) {
		slurm_error("pyxis: no such kind of namespace: %s", name);
		return -1;
	}
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		slurm_error("pyxis: cannot open the container's %s namespace: %s", name,
			    strerror(errno));
		return -1;
	}
	if (is_own(fd, name)) {
		close(fd);
		return 0;
	}
	joins->fds[joins->count] = fd;
	joins->which[joins->count++] = i;
	return 0;
}

static int open_all(struct joins *joins, const struct answer *answer)
{
	pid_t pid = answer_pid(answer);

	for (const char *at = answer_next(answer, NULL); at != NULL; at = answer_next(answer, at)) {
		const char *name = record_value(at, "join");

		if (name != NULL && open_one(joins, pid, name) < 0)
			return -1;
	}
	return 0;
}

/* "NAME=VALUE" or "FROM=TO": cut the private copy of a record in two. */
static char *cut(char *text)
{
	char *equals = strchr(text, '=');

	if (equals != NULL)
		*equals++ = '\0';
	return equals;
}

static spank_err_t copy_variable(spank_t spank, const char *from, const char *to)
{
	char value[4096];
	spank_err_t error = spank_getenv(spank, from, value, sizeof(value));

	if (error == ESPANK_ENV_NOEXIST)
		return ESPANK_SUCCESS;
	return error != ESPANK_SUCCESS ? error : spank_setenv(spank, to, value, 1);
}

static spank_err_t edit(spank_t spank, const char *record, const char **what)
{
	AUTO_FREE char *copy = NULL;
	const char *text, *second;
	spank_err_t error;

	*what = record;
	if ((text = record_value(record, "unset")) != NULL) {
		error = spank_unsetenv(spank, text);
		return error == ESPANK_ENV_NOEXIST ? ESPANK_SUCCESS : error;
	}
	text = record_value(record, "env");
	if (text == NULL)
		text = record_value(record, "default");
	if (text == NULL)
		text = record_value(record, "copy");
	if (text == NULL)
		return ESPANK_SUCCESS;
	copy = strdup(text);
	second = copy != NULL ? cut(copy) : NULL;
	if (second == NULL)
		return ESPANK_BAD_ARG;
	if (record_value(record, "copy") != NULL)
		return copy_variable(spank, copy, second);
	error = spank_setenv(spank, copy, second, record_value(record, "env") != NULL);
	return error == ESPANK_ENV_EXISTS ? ESPANK_SUCCESS : error;
}

static int edit_environment(spank_t spank, const struct answer *answer)
{
	const char *what = NULL;

	for (const char *at = answer_next(answer, NULL); at != NULL; at = answer_next(answer, at)) {
		spank_err_t error = edit(spank, at, &what);

		if (error != ESPANK_SUCCESS) {
			slurm_error("pyxis: cannot change the task's environment (%.60s): %s", what,
				    spank_strerror(error));
			return -1;
		}
	}
	return 0;
}

static int set_filter(void)
{
	const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	/* Without this flag older kernels switch a speculation mitigation on that costs time. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		    &program) == 0)
		return 0;
	if (errno != EINVAL)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static int enter(const struct joins *joins, const struct answer *answer)
{
	const char *folder = answer_first(answer, "cwd");
	const char *seccomp = answer_first(answer, "seccomp");

	for (size_t i = 0; i < joins->count; ++i) {
		if (setns(joins->fds[i], namespaces[joins->which[i]].kind) < 0) {
			slurm_error("pyxis: cannot join the container's %s namespace: %s",
				    namespaces[joins->which[i]].name, strerror(errno));
			return -1;
		}
	}
	if (folder != NULL && chdir(folder) < 0) {
		slurm_error("pyxis: cannot change to %s in the container: %s", folder,
			    strerror(errno));
		return -1;
	}
	if (seccomp != NULL && strcmp(seccomp, "1") == 0 && set_filter() < 0) {
		slurm_error("pyxis: cannot install the system call filter: %s", strerror(errno));
		return -1;
	}
	return 0;
}

int join_container(spank_t spank, const struct answer *answer)
{
	__attribute__((cleanup(joins_close))) struct joins joins = { .count = 0 };

	if (answer_pid(answer) <= 0) {
		slurm_error("pyxis: the container's keeper named no process to join");
		return -1;
	}
	if (open_all(&joins, answer) < 0 || edit_environment(spank, answer) < 0)
		return -1;
	return enter(&joins, answer);
}
