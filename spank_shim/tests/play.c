/*
 * Plays Slurm's part: calls the plugin's hooks in the order and the processes in which srun,
 * slurmd and slurmstepd call them, with a job environment of its own.
 *
 *     play local|step|slurmd|epilog TASKS [--NUMBER=VALUE]... [::NUMBER=VALUE]... [WORD]...
 *
 * Flags that begin with two colons are those of a step's second component; "::" alone is one of none.
 * NUMBER is a flag's in options_table.h, WORD stands behind the plugin in plugstack.conf. A task that
 * was let in prints its variables and its namespaces in place of executing a command.
 */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct spank_handle {
	int unused;
};

static enum spank_context context;
static int tasks;
static struct spank_option *registered[64];
static int registered_count;

static void say(const char *level, const char *format, va_list arguments)
{
	char text[16384];

	(void)vsnprintf(text, sizeof(text), format, arguments);
	(void)dprintf(STDERR_FILENO, "%s%s\n", level, text);
}

#define PRINTER(name, level)                  \
	void name(const char *format, ...)    \
	{                                     \
		va_list arguments;            \
		va_start(arguments, format);  \
		say(level, format, arguments); \
		va_end(arguments);            \
	}
PRINTER(slurm_error, "error: ")
PRINTER(slurm_info, "info: ")
PRINTER(slurm_spank_log, "")

spank_context_t spank_context(void)
{
	return context;
}

int spank_remote(spank_t spank)
{
	(void)spank;
	return context == S_CTX_REMOTE;
}

const char *spank_strerror(spank_err_t error)
{
	return error == ESPANK_SUCCESS ? "Success" : "Failure";
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void)spank;
	registered[registered_count++] = option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	static gid_t groups[1];
	static char *words[] = { "/bin/sh", NULL };
	va_list arguments;

	(void)spank;
	va_start(arguments, item);
	switch (item) {
	case S_JOB_UID:
		*va_arg(arguments, uid_t *) = getuid();
		break;
	case S_JOB_GID:
		*va_arg(arguments, gid_t *) = getgid();
		break;
	case S_JOB_ID:
		*va_arg(arguments, uint32_t *) = 7;
		break;
	case S_JOB_STEPID:
		*va_arg(arguments, uint32_t *) = getenv("PLAY_BATCH") ? SLURM_BATCH_SCRIPT : 0;
		break;
	case S_JOB_LOCAL_TASK_COUNT:
	case S_JOB_TOTAL_TASK_COUNT:
		*va_arg(arguments, uint32_t *) = (uint32_t)tasks;
		break;
	case S_JOB_ENV:
		*va_arg(arguments, char ***) = environ;
		break;
	case S_JOB_ARGV:
		*va_arg(arguments, int *) = 1;
		*va_arg(arguments, char ***) = words;
		break;
	case S_JOB_SUPPLEMENTARY_GIDS:
		groups[0] = getgid();
		*va_arg(arguments, gid_t **) = groups;
		*va_arg(arguments, int *) = 1;
		break;
	default:
		va_end(arguments);
		return ESPANK_BAD_ARG;
	}
	va_end(arguments);
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size)
{
	const char *value = getenv(name);

	(void)spank;
	if (value == NULL)
		return ESPANK_ENV_NOEXIST;
	if (snprintf(buffer, (size_t)size, "%s", value) >= size)
		return ESPANK_NOSPACE;
	return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	(void)spank;
	if (!overwrite && getenv(name) != NULL)
		return ESPANK_ENV_EXISTS;
	return setenv(name, value, 1) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	(void)spank;
	return unsetenv(name) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

extern spank_f slurm_spank_init, slurm_spank_init_post_opt, slurm_spank_user_init,
	slurm_spank_task_post_fork, slurm_spank_task_init, slurm_spank_task_exit,
	slurm_spank_job_epilog, slurm_spank_exit;

static void print_link(const char *path)
{
	char target[128];
	ssize_t size = readlink(path, target, sizeof(target) - 1);

	if (size > 0)
		(void)dprintf(STDOUT_FILENO, "%s=%.*s\n", path, (int)size, target);
}

static void print_status(void)
{
	char line[256];
	FILE *file = fopen("/proc/self/status", "r");

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "Seccomp:", 8) == 0)
			(void)dprintf(STDOUT_FILENO, "%s", line);
	if (file != NULL)
		(void)fclose(file);
}

static void be_task(void)
{
	for (char **name = environ; *name != NULL; ++name)
		if (strncmp(*name, "PLAY_", 5) == 0)
			(void)dprintf(STDOUT_FILENO, "%s\n", *name);
	print_link("/proc/self/ns/user");
	print_link("/proc/self/ns/mnt");
	print_link("/proc/self/cwd");
	print_status();
}

static int run_task(spank_t spank, int count, char **words)
{
	int outcome = slurm_spank_task_init(spank, count, words);

	if (outcome == 0)
		be_task();
	/* A task that becomes its command has no hook of its end; this is for those who count memory. */
	(void)slurm_spank_exit(spank, count, words);
	return outcome == 0 ? 0 : 1;
}

static int is_one_of(pid_t pid, const pid_t *pids)
{
	for (int i = 0; i < tasks; ++i)
		if (pids[i] == pid)
			return 1;
	return 0;
}

static int run_step(spank_t spank, int count, char **words)
{
	pid_t pids[64];
	int worst = 0;

	(void)slurm_spank_user_init(spank, count, words);
	for (int i = 0; i < tasks && i < 64; ++i) {
		pids[i] = fork();
		if (pids[i] == 0)
			exit(run_task(spank, count, words));
	}
	for (int i = 0; i < tasks; ++i)
		(void)slurm_spank_task_post_fork(spank, count, words);
	/* Like slurmstepd, wait for any child: some are not tasks. */
	for (int ended = 0; ended < tasks;) {
		int status;
		pid_t pid = wait(&status);

		if (pid < 0)
			break;
		if (!is_one_of(pid, pids))
			continue;
		++ended;
		if (status > worst)
			worst = status;
		if (slurm_spank_task_exit(spank, count, words) != 0)
			(void)dprintf(STDERR_FILENO, "task_exit failed\n");
	}
	return WIFEXITED(worst) ? WEXITSTATUS(worst) : 1;
}

/* Give the flags that begin with `mark`, and take them out; returns whether there were any. */
static bool give_flags(int *count, char **words, const char *mark)
{
	int kept = 0, given = *count;

	for (int i = 0; i < *count; ++i) {
		char *value = strchr(words[i], '=');

		if (strncmp(words[i], mark, 2) != 0) {
			words[kept++] = words[i];
			continue;
		}
		for (int j = 0; value != NULL && j < registered_count; ++j)
			if (registered[j]->val == atoi(words[i] + 2))
				(void)registered[j]->cb(registered[j]->val, value + 1,
							context == S_CTX_REMOTE);
	}
	*count = kept;
	return kept < given;
}

int main(int argc, char **argv)
{
	struct spank_handle handle = { 0 };
	const char *what = argc > 2 ? argv[1] : "";
	int count = argc - 3, plain, outcome;
	char **words = argv + 3;

	tasks = argc > 2 ? atoi(argv[2]) : 0;
	context = strcmp(what, "local") == 0  ? S_CTX_LOCAL :
		  strcmp(what, "sbatch") == 0 ? S_CTX_ALLOCATOR :
		  strcmp(what, "step") == 0   ? S_CTX_REMOTE :
		  strcmp(what, "slurmd") == 0 ? S_CTX_SLURMD :
						S_CTX_JOB_SCRIPT;
	if (strcmp(what, "epilog") == 0)
		return slurm_spank_job_epilog(&handle, count, words) == 0 ? 0 : 1;
	outcome = slurm_spank_init(&handle, count, words);
	(void)give_flags(&count, words, "--");
	for (plain = 0; plain < count && strncmp(words[plain], "::", 2) == 0; ++plain)
		;
	if (outcome == 0)
		outcome = slurm_spank_init_post_opt(&handle, count - plain, words + plain);
	if (outcome == 0 && give_flags(&count, words, "::"))
		outcome = slurm_spank_init_post_opt(&handle, count, words);
	if (outcome == 0 && context == S_CTX_REMOTE)
		outcome = run_step(&handle, count, words);
	(void)slurm_spank_exit(&handle, count, words);
	if (context == S_CTX_LOCAL)
		for (char **name = environ; *name != NULL; ++name)
			if (strncmp(*name, "PLAY_", 5) == 0 || strncmp(*name, "SLURM_PYXIS_COMPONENT", 21) == 0)
				(void)dprintf(STDOUT_FILENO, "%s\n", *name);
	return outcome == 0 ? 0 : 1;
}
