#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

#ifndef PYXIS_PYTHON
#define PYXIS_PYTHON "/usr/bin/python3"
#endif
#ifndef PYXIS_PACKAGES
#define PYXIS_PACKAGES "/usr/lib/python3/dist-packages"
#endif
#ifndef KEEPER_SCRIPT
#define KEEPER_SCRIPT PYXIS_PACKAGES "/pyxis_py/keeper.py"
#endif

/* The keeper's descriptors: its standard ones, the request, the answer, and `start`'s line. */
enum { KEEPER_FDS = 6 };

#define LOG_TAIL 8192

/* Kernels before 5.3 have no descriptors for processes: look that often whether one is there. */
#define LOOK_MILLISECONDS 500
/* The C library's headers may be older than the kernel; these numbers are those of all machines. */
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

const char *word_value(int count, char **words, const char *key)
{
	for (int i = 0; i < count; ++i) {
		const char *value = record_value(words[i], key);

		if (value != NULL)
			return value;
	}
	return NULL;
}

int memory_file(const char *name)
{
	return memfd_create(name, MFD_CLOEXEC);
}

static void fail_child(const char *what, const char *on)
{
	(void)dprintf(STDERR_FILENO, "%s %s: %s\n", what, on, strerror(errno));
	_exit(127);
}

static int become(const struct account *account)
{
	/* Slurm may have lowered the effective ids only; what is saved must go as well. */
	if (geteuid() != 0 && seteuid(0) < 0)
		return geteuid() == account->uid ? 0 : -1;
	if (setgroups((size_t)account->group_count, account->groups) < 0 ||
	    setresgid(account->gid, account->gid, account->gid) < 0)
		return -1;
	return setresuid(account->uid, account->uid, account->uid);
}

/* Put descriptors at 0, 1, …, and close all others. */
static int place(const int *fds, int count)
{
	int high[KEEPER_FDS];

	for (int i = 0; i < count; ++i) {
		high[i] = fcntl(fds[i], F_DUPFD, KEEPER_FDS);
		if (high[i] < 0)
			return -1;
	}
	for (int i = 0; i < count; ++i)
		if (dup2(high[i], i) < 0)
			return -1;
	if (syscall(SYS_close_range, count, ~0U, 0) < 0)
		for (long fd = count, limit = sysconf(_SC_OPEN_MAX); fd < limit; ++fd)
			close((int)fd);
	return 0;
}

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; ++number)
		(void)signal(number, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The child: never returns. It may be a copy of a process with threads, so no memory is asked for. */
__attribute__((noreturn)) static void run(const struct keeper_call *call, const int *fds, int count)
{
	const char *python = call->python != NULL ? call->python : PYXIS_PYTHON;
	const char *inherited = getenv("PATH");
	char path[4096];
	char *few[] = { path, NULL };
	char *const words[] = { (char *)python, "-I", "-S", KEEPER_SCRIPT,
				(char *)call->verb, NULL };

	(void)snprintf(path, sizeof(path), "PATH=%s", inherited ? inherited : DEFAULT_PATH);
	reset_signals();
	if (place(fds, count) < 0)
		_exit(126);
	if (call->account != NULL && become(call->account) < 0)
		fail_child("cannot become the job's user for", call->verb);
	if (access(KEEPER_SCRIPT, R_OK) < 0)
		fail_child("the Python package is not where the plugin was built for:",
			   KEEPER_SCRIPT);
	if (!call->own_environ && chdir("/") < 0)
		fail_child("cannot change to", "/");
	(void)execve(python, words, call->own_environ ? environ : few);
	fail_child("cannot execute the Python interpreter", python);
	_exit(127);
}

/* Write the request to a file of its own; returns its descriptor. */
static int request_file(const struct request *request)
{
	int fd;
	size_t done = 0;

	if (request->failed) {
		errno = ENOMEM;
		return -1;
	}
	fd = memory_file("request");
	while (fd >= 0 && done < request->size) {
		ssize_t written = pwrite(fd, request->data + done, request->size - done,
					 (off_t)done);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) {
			close_and_forget(&fd);
			break;
		}
		done += (size_t)written;
	}
	return fd;
}

static pid_t fork_sibling(int *pid_fd)
{
	*pid_fd = -1;
	/* The C library's fork() can make no sibling. Kernels before 5.2 leave *pid_fd alone. */
	return (pid_t)syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | SIGCHLD, NULL, pid_fd, NULL,
			      NULL);
}

/* pid_fd NULL: an ordinary child. */
static pid_t launch(const struct keeper_call *call, int *pid_fd)
{
	AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	AUTO_CLOSE int request_fd = request_file(call->request);
	const int fds[KEEPER_FDS] = { null_fd,	  call->log_fd,	   call->log_fd,
				      request_fd, call->answer_fd, call->line_fd };
	pid_t pid;

	if (null_fd < 0 || request_fd < 0)
		return -1;
	pid = pid_fd != NULL ? fork_sibling(pid_fd) : fork();
	if (pid == 0) {
		/* A terminal's signals are for the task; the container must outlive a ^C. */
		if (pid_fd != NULL)
			(void)setsid();
		/* On a node: what it starts ends with it, at the latest. */
		else if (!call->own_environ)
			(void)setpgid(0, 0);
		run(call, fds, call->line_fd >= 0 ? KEEPER_FDS : KEEPER_FDS - 1);
	}
	return pid;
}

pid_t keeper_start(const struct keeper_call *call, int *pid_fd)
{
	return launch(call, pid_fd);
}

/* What the keeper has begun to tell the user; a longer line comes in pieces. */
struct news {
	char text[512];
	size_t size;
};

static void add_byte(struct news *news, char byte)
{
	if (byte != '\n')
		news->text[news->size++] = byte;
	if (byte != '\n' && news->size < sizeof(news->text) - 1)
		return;
	news->text[news->size] = '\0';
	slurm_spank_log("pyxis: %s", news->text);
	news->size = 0;
}

/*
 * Pass on to the user what has come over the line. Returns 1 once the keeper says that its answer is
 * there (a NUL), -1 at the line's end, else 0. Byte by byte: what follows the NUL is not news.
 */
static int pass_news(int line_fd, struct news *news)
{
	char byte = '\0';
	ssize_t count;

	while ((count = recv(line_fd, &byte, 1, MSG_DONTWAIT)) == 1 && byte != '\0')
		add_byte(news, byte);
	if (count == 1)
		return 1;
	return count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

bool keeper_await(int line_fd, pid_t pid, int pid_fd)
{
	struct news news = { .size = 0 };
	struct pollfd polled[] = { { .fd = line_fd, .events = POLLIN },
				   { .fd = pid_fd, .events = POLLIN } };
	int said;

	for (;;) {
		int ready = poll(polled, 2, pid_fd < 0 ? LOOK_MILLISECONDS : -1);

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready < 0)
			return false;
		if (polled[0].revents != 0 && (said = pass_news(line_fd, &news)) != 0)
			return said > 0;
		if (polled[0].revents != 0)
			continue;
		if (polled[1].revents != 0)
			return false;
		if (pid_fd < 0 && kill(pid, 0) < 0 && errno == ESRCH)
			return false;
	}
}

void answer_print(const struct answer *answer)
{
	for (const char *at = answer_next(answer, NULL); at != NULL; at = answer_next(answer, at)) {
		const char *text = record_value(at, "error");

		if (text != NULL)
			slurm_error("pyxis: %s", text);
		else if ((text = record_value(at, "log")) != NULL)
			slurm_spank_log("pyxis: %s", text);
		else if ((text = record_value(at, "info")) != NULL)
			slurm_info("pyxis: %s", text);
	}
}

void keeper_complain(const char *verb, const char *fault, int log_fd)
{
	char text[LOG_TAIL + 1];
	char *rest = text;
	struct stat status;
	ssize_t size = 0;

	slurm_error("pyxis: the container's keeper (%s) gave no usable answer: %s", verb, fault);
	if (log_fd >= 0 && fstat(log_fd, &status) == 0)
		size = pread(log_fd, text, LOG_TAIL,
			     status.st_size > LOG_TAIL ? status.st_size - LOG_TAIL : 0);
	if (size <= 0)
		return;
	text[size] = '\0';
	slurm_error("pyxis: what it printed:");
	for (char *line; (line = strsep(&rest, "\n")) != NULL;)
		if (*line != '\0')
			slurm_error("pyxis:     %s", line);
}

static long milliseconds(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

/*
 * Wait for a child until its time is over, and pass its news on; returns whether it has ended by
 * itself.
 */
static bool ends_in_time(pid_t pid, int line_fd, int seconds)
{
	AUTO_CLOSE int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd polled[] = { { .fd = line_fd, .events = POLLIN },
				   { .fd = pid_fd, .events = POLLIN } };
	const long end = milliseconds() + seconds * 1000L;
	struct news news = { .size = 0 };
	siginfo_t info;

	for (long left = seconds * 1000L; left > 0; left = end - milliseconds()) {
		/* Without a descriptor of the child this sleeps. */
		int ready = poll(polled, 2, pid_fd < 0 && left > 5 ? 5 : (int)left);

		if (ready > 0 && polled[0].revents != 0 && pass_news(line_fd, &news) != 0)
			polled[0].fd = -1;
		if (ready > 0 && polled[1].revents != 0)
			return true;
		info.si_pid = 0;
		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
		    info.si_pid != 0)
			return true;
	}
	return false;
}

/*
 * Wait for a child; kill it when its time is over, and what it has started itself whenever it ends,
 * if it has a process group of its own: on a node nobody else would. Returns what is wrong, or NULL.
 */
static const char *wait_for(pid_t pid, int line_fd, int seconds, bool has_group)
{
	const char *fault = NULL;

	if (!ends_in_time(pid, line_fd, seconds)) {
		(void)kill(pid, SIGKILL);
		fault = "it took too long";
	}
	/* Until it is reaped its number is nobody else's. */
	if (has_group)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return fault;
}

int keeper_ask(struct keeper_call *call, int seconds, struct answer *answer)
{
	AUTO_CLOSE int answer_fd = memory_file("answer");
	AUTO_CLOSE int log_fd = memory_file("log");
	int line[2] = { -1, -1 };
	AUTO_CLOSE int line_fd = -1;
	const char *fault, *status;
	pid_t pid = -1;

	if (answer_fd >= 0 && log_fd >= 0 &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) == 0) {
		line_fd = line[0];
		call->answer_fd = answer_fd;
		call->log_fd = log_fd;
		call->line_fd = line[1];
		pid = launch(call, NULL);
		close(line[1]);
	}
	if (pid < 0) {
		slurm_error("pyxis: cannot start the container's keeper (%s): %s", call->verb,
			    strerror(errno));
		return -1;
	}
	fault = wait_for(pid, line_fd, seconds, !call->own_environ);
	if (fault == NULL)
		fault = answer_read(answer, answer_fd);
	if (fault != NULL) {
		keeper_complain(call->verb, fault, log_fd);
		return -1;
	}
	answer_print(answer);
	status = answer_first(answer, "status");
	return strcmp(status, "error") == 0 ? -1 : 0;
}
