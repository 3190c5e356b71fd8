/* Run the keeper, which is Python: see README.md for what is said and on which descriptors. */
#ifndef PYXIS_KEEPER_H
#define PYXIS_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "records.h"

/* Whom a keeper runs as, where this process is root's. */
struct account {
	uid_t uid;
	gid_t gid;
	int group_count;
	gid_t *groups;
};

/*
 * One call of a keeper. `python` is the interpreter, NULL for the one that the plugin was built
 * with. Descriptors stay the caller's. `account` is NULL to run as this process does.
 */
struct keeper_call {
	const char *verb;
	const char *python;
	const struct request *request;
	const struct account *account;
	int answer_fd;
	int log_fd;
	int line_fd;
	bool own_environ;
};

/* What the words behind the plugin in plugstack.conf say about one key; NULL if nothing. */
const char *word_value(int count, char **words, const char *key);

/* An empty file in memory, close-on-exec. */
int memory_file(const char *name);

/*
 * Start a keeper that is no child of this process but its sibling: the task that this process is
 * about to become must not find a child that it does not know. `pid_fd` gets a descriptor that is
 * readable once the keeper has ended, -1 if the kernel has none.
 */
pid_t keeper_start(const struct keeper_call *call, int *pid_fd);

/*
 * Wait until the keeper has written its answer, or has ended, and print the lines that it has for
 * the user in the meantime. Returns whether it said that the answer is there.
 */
bool keeper_await(int line_fd, pid_t pid, int pid_fd);

/*
 * Have a keeper do something that ends by itself, in `seconds` at most. The answer's lines are
 * printed. Returns 0, or -1 after an error was printed.
 */
int keeper_ask(struct keeper_call *call, int seconds, struct answer *answer);

/* Print an answer's lines: errors, those for the user, those for the daemon's log. */
void answer_print(const struct answer *answer);

/* Say that there is no answer, and why: the fault and the end of what the keeper has printed. */
void keeper_complain(const char *verb, const char *fault, int log_fd);

#endif
