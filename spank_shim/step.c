/* slurmstepd: one container for the tasks of a step on this node. */
#include "step.h"

#include <errno.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "join.h"
#include "keeper.h"
#include "once.h"
#include "options.h"
#include "records.h"
#include "runtime.h"

/* A step's end may write an image; what takes longer than this will not end. */
#ifndef FINISH_SECONDS
#define FINISH_SECONDS 3600
#endif

/* For how long a step's end waits for what ends by itself. */
#define ORPHAN_MILLISECONDS 250

static struct {
	bool enabled;
	bool failed;
	struct account account;
	uint32_t job;
	uint32_t step;
	uint32_t tasks;
	uint32_t local_tasks;
	uint32_t forked;
	struct meeting *meeting;
	int answer_fd;
	int log_fd;
	int line_fd;	/* our end of the line to the keeper; slurmstepd's until all tasks ended */
	int keeper_fd;	/* the keeper's */
} step = { .answer_fd = -1, .log_fd = -1, .line_fd = -1, .keeper_fd = -1 };

static int complain(const char *what, spank_err_t error)
{
	slurm_error("pyxis: Slurm does not tell the job's %s: %s", what, spank_strerror(error));
	return -1;
}

static int read_facts(spank_t spank)
{
	const struct {
		spank_item_t item;
		const char *what;
		void *value;
	} items[] = {
		{ S_JOB_UID, "user", &step.account.uid },
		{ S_JOB_GID, "group", &step.account.gid },
		{ S_JOB_ID, "number", &step.job },
		{ S_JOB_STEPID, "step", &step.step },
		{ S_JOB_TOTAL_TASK_COUNT, "tasks", &step.tasks },
		{ S_JOB_LOCAL_TASK_COUNT, "local tasks", &step.local_tasks },
	};
	gid_t *groups = NULL;
	spank_err_t error;

	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); ++i) {
		error = spank_get_item(spank, items[i].item, items[i].value);
		if (error != ESPANK_SUCCESS)
			return complain(items[i].what, error);
	}
	error = spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups,
			       &step.account.group_count);
	if (error != ESPANK_SUCCESS)
		return complain("groups", error);
	/* The array is Slurm's, and need not be there later. */
	step.account.groups = calloc((size_t)step.account.group_count + 1, sizeof(gid_t));
	if (step.account.groups == NULL)
		return -1;
	if (step.account.group_count > 0)
		memcpy(step.account.groups, groups,
		       (size_t)step.account.group_count * sizeof(gid_t));
	return 0;
}

/*
 * A failure here, or in user_init, would reach nobody, and srun would report success (Slurm bug
 * 7573): it is kept for task_init.
 */
int step_post_opt(spank_t spank, int count, char **words)
{
	if (!options_any(spank))
		return 0;
	step.enabled = true;
	if (read_facts(spank) < 0 ||
	    runtime_prepare(runtime_path(count, words), step.account.uid, step.account.gid,
			    step.job) < 0)
		step.failed = true;
	return 0;
}

int step_user_init(spank_t spank)
{
	int line[2] = { -1, -1 };

	(void)spank;
	if (!step.enabled || step.failed)
		return 0;
	step.meeting = meeting_create();
	step.answer_fd = memory_file("answer");
	step.log_fd = memory_file("log");
	if (step.meeting == NULL || step.answer_fd < 0 || step.log_fd < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0) {
		slurm_error("pyxis: cannot prepare the step: %s", strerror(errno));
		step.failed = true;
		return 0;
	}
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	step.line_fd = line[0];
	step.keeper_fd = line[1];
	return 0;
}

/*
 * When a step's last task has ended Slurm looks for other processes of the step, and if it finds one
 * kills it and sleeps for a second. An image's server and the keeper end by themselves, but some
 * milliseconds later. As their reaper slurmstepd can wait for them.
 */
static void await_orphans(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (int i = 0; i < ORPHAN_MILLISECONDS; ++i) {
		pid_t pid;

		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (pid < 0)
			return;
		(void)nanosleep(&pause, NULL);
	}
}

/* All tasks are copies of slurmstepd by now, and one of them starts the keeper. */
int step_task_post_fork(void)
{
	if (step.enabled && ++step.forked >= step.local_tasks)
		close_and_forget(&step.keeper_fd);
	return 0;
}

static void add_facts(struct request *request, int count, char **words)
{
	request_add(request, "version", PROTOCOL_VERSION);
	for (int i = 0; i < count; ++i)
		request_add(request, "word", words[i]);
	request_add_number(request, "uid", step.account.uid);
	request_add_number(request, "gid", step.account.gid);
	request_add_number(request, "job", step.job);
	request_add_number(request, "step", step.step);
	request_add_number(request, "tasks", step.tasks);
	request_add_number(request, "local_tasks", step.local_tasks);
}

static void add_environment(struct request *request, spank_t spank)
{
	char **environment = NULL;
	char folder[PATH_MAX];
	const char *cwd = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		return;
	request_add_all(request, "env", environment);
	for (; environment != NULL && *environment != NULL; ++environment)
		if (strncmp(*environment, "PWD=/", 5) == 0)
			cwd = *environment + 4;
	/* srun need not have been started by a shell. */
	if (cwd == NULL)
		cwd = getcwd(folder, sizeof(folder));
	if (cwd != NULL)
		request_add(request, "cwd", cwd);
}

static void add_script(struct request *request, spank_t spank)
{
	int count = 0;
	char **words = NULL;

	if (step.step == SLURM_BATCH_SCRIPT &&
	    spank_get_item(spank, S_JOB_ARGV, &count, &words) == ESPANK_SUCCESS && count > 0)
		request_add(request, "script", words[0]);
}

/* The first task's turn: returns once the answer is there, or never will be. */
static void start_container(spank_t spank, int count, char **words)
{
	AUTO_REQUEST struct request request = { 0 };
	AUTO_CLOSE int pid_fd = -1;
	pid_t pid;
	struct keeper_call call = {
		.verb = "start",
		.python = word_value(count, words, "python"),
		.request = &request,
		.answer_fd = step.answer_fd,
		.log_fd = step.log_fd,
		.line_fd = step.keeper_fd,
	};

	add_facts(&request, count, words);
	request_add(&request, "linger", "1");
	add_script(&request, spank);
	options_add(&request);
	add_environment(&request, spank);
	pid = keeper_start(&call, &pid_fd);
	if (pid < 0) {
		slurm_error("pyxis: cannot start the container's keeper: %s", strerror(errno));
		return;
	}
	close_and_forget(&step.keeper_fd);
	(void)keeper_await(step.line_fd, pid, pid_fd);
}

/* Returns 0 to go on, 1 to run as it is, -1 after an error. */
static int obtain_answer(spank_t spank, int count, char **words, struct answer *answer)
{
	enum turn turn = meeting_enter(step.meeting);
	const char *fault, *status;

	if (turn == TURN_FAILED)
		return -1;
	if (turn == TURN_FIRST)
		start_container(spank, count, words);
	meeting_leave(step.meeting);
	fault = answer_read(answer, step.answer_fd);
	if (turn == TURN_FIRST && fault != NULL)
		keeper_complain("start", fault, step.log_fd);
	if (turn == TURN_FIRST && fault == NULL)
		answer_print(answer);
	status = fault == NULL ? answer_first(answer, "status") : "error";
	if (strcmp(status, "none") == 0)
		return 1;
	if (strcmp(status, "ok") == 0)
		return 0;
	if (turn != TURN_FIRST)
		slurm_error("pyxis: another task of this step could not start the container");
	return -1;
}

static int enter_container(spank_t spank, int count, char **words)
{
	AUTO_ANSWER struct answer answer = { 0 };
	int outcome = obtain_answer(spank, count, words, &answer);

	if (outcome != 0)
		return outcome < 0 ? -1 : 0;
	if (join_container(spank, &answer) < 0)
		return -1;
	meeting_join(step.meeting);
	return 0;
}

int step_task_init(spank_t spank, int count, char **words)
{
	int outcome;

	if (!step.enabled)
		return 0;
	if (step.failed) {
		slurm_error("pyxis: the step was not prepared on this node: see its slurmd's log");
		return -1;
	}
	outcome = enter_container(spank, count, words);
	/* From now on the tasks themselves keep the container alive. */
	if (meeting_pass(step.meeting, step.local_tasks))
		(void)send(step.line_fd, "", 1, MSG_NOSIGNAL);
	close_and_forget(&step.line_fd);
	close_and_forget(&step.keeper_fd);
	close_and_forget(&step.answer_fd);
	close_and_forget(&step.log_fd);
	return outcome;
}

static int finish(spank_t spank, int count, char **words, const char *state)
{
	AUTO_REQUEST struct request request = { 0 };
	AUTO_ANSWER struct answer answer = { 0 };
	struct keeper_call call = {
		.verb = "finish",
		.python = word_value(count, words, "python"),
		.request = &request,
		.account = &step.account,
	};

	add_facts(&request, count, words);
	options_add(&request);
	request_add(&request, "state", state);
	request_add_number(&request, "started", meeting_joined(step.meeting));
	add_environment(&request, spank);
	return keeper_ask(&call, FINISH_SECONDS, &answer);
}

int step_task_exit(spank_t spank, int count, char **words)
{
	AUTO_ANSWER struct answer answer = { 0 };
	const char *wanted, *state;

	if (!step.enabled || step.meeting == NULL ||
	    !meeting_end(step.meeting, step.local_tasks))
		return 0;
	/* Tells the keeper to end, which lingers so that its end does not come before a task's. */
	close_and_forget(&step.line_fd);
	await_orphans();
	if (answer_read(&answer, step.answer_fd) != NULL)
		return 0;
	wanted = answer_first(&answer, "finish");
	state = answer_first(&answer, "state");
	if (wanted == NULL || strcmp(wanted, "1") != 0)
		return 0;
	return finish(spank, count, words, state != NULL ? state : "");
}

void step_exit(void)
{
	close_and_forget(&step.line_fd);
	close_and_forget(&step.keeper_fd);
	close_and_forget(&step.answer_fd);
	close_and_forget(&step.log_fd);
	free(step.account.groups);
	step.account.groups = NULL;
	meeting_destroy(step.meeting);
	step.meeting = NULL;
	step.enabled = false;
	options_free();
}
