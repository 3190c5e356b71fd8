#include "runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "keeper.h"

#define DEFAULT_FOLDER "/run/pyxis"

/* A folder of root's own: notes tell the epilog of jobs that had containers from all others. */
#define NOTES "jobs"

enum { FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

const char *runtime_path(int count, char **words)
{
	const char *path = word_value(count, words, "runtime_path");

	return path != NULL ? path : DEFAULT_FOLDER;
}

static int complain(const char *path, const char *name)
{
	slurm_error("pyxis: cannot make the runtime folder %s/%s: %s", path, name, strerror(errno));
	return -1;
}

int runtime_make(const char *path)
{
	AUTO_CLOSE int fd = -1;

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return complain(path, "");
	fd = open(path, FOLDER_FLAGS);
	/* The daemon's umask has taken bits away that users need. */
	if (fd < 0 || fchmod(fd, 0755) < 0)
		return complain(path, "");
	return 0;
}

/* Make a folder in an open one and give it away; one that is there is left as it is. */
static int make_folder(int base_fd, const char *name, uid_t uid, gid_t gid)
{
	AUTO_CLOSE int fd = -1;

	if (mkdirat(base_fd, name, 0700) < 0)
		return errno == EEXIST ? 0 : -1;
	fd = openat(base_fd, name, FOLDER_FLAGS);
	if (fd < 0 || fchmod(fd, 0700) < 0)
		return -1;
	return uid == geteuid() ? 0 : fchown(fd, uid, gid);
}

int runtime_prepare(const char *path, uid_t uid, gid_t gid, uint32_t job)
{
	AUTO_CLOSE int base_fd = open(path, FOLDER_FLAGS);
	AUTO_CLOSE int note_fd = -1;
	char name[40];

	if (base_fd < 0 && errno == ENOENT && runtime_make(path) == 0)
		base_fd = open(path, FOLDER_FLAGS);
	if (base_fd < 0)
		return complain(path, "");
	(void)snprintf(name, sizeof(name), "%u", (unsigned)uid);
	if (make_folder(base_fd, name, uid, gid) < 0)
		return complain(path, name);
	if (make_folder(base_fd, NOTES, geteuid(), getegid()) < 0)
		return complain(path, NOTES);
	(void)snprintf(name, sizeof(name), NOTES "/%u", (unsigned)job);
	note_fd = openat(base_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return note_fd < 0 ? complain(path, name) : 0;
}

bool runtime_forget(const char *path, uint32_t job)
{
	AUTO_CLOSE int base_fd = open(path, FOLDER_FLAGS);
	char name[40];

	(void)snprintf(name, sizeof(name), NOTES "/%u", (unsigned)job);
	return base_fd >= 0 && unlinkat(base_fd, name, 0) == 0;
}
