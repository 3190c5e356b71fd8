/*
 * The form in which this plugin and its keeper talk: KEY=VALUE records that end in NUL. README.md
 * has the keys.
 */
#ifndef PYXIS_RECORDS_H
#define PYXIS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What both sides speak, as README.md has it; the keeper refuses another one. */
#define PROTOCOL_VERSION "2"

/* An answer larger than this is none: an environment is at most a few MiB. */
#define ANSWER_LIMIT (32U << 20)

/* A request in the making. `failed` says that memory ran out on the way. */
struct request {
	char *data;
	size_t size;
	size_t capacity;
	bool failed;
};

void request_add(struct request *request, const char *key, const char *value);
void request_add_number(struct request *request, const char *key, unsigned long value);
void request_add_all(struct request *request, const char *key, char *const *values);
void request_free(struct request *request);

#define AUTO_REQUEST __attribute__((cleanup(request_free)))

/* A whole answer in this process's own memory; every record in it is known to be well formed. */
struct answer {
	char *data;
	size_t size;
};

/*
 * Read an answer from the file that the keeper wrote.
 * Returns NULL, or what is wrong with it: a text that needs no freeing.
 */
const char *answer_read(struct answer *answer, int fd);
void answer_free(struct answer *answer);

#define AUTO_ANSWER __attribute__((cleanup(answer_free)))

/* The next record behind `at`, NULL for the first; NULL when there is none. */
const char *answer_next(const struct answer *answer, const char *at);

/* The value of a record if it has this key, else NULL. */
const char *record_value(const char *record, const char *key);

/* The first value of a key, or NULL. */
const char *answer_first(const struct answer *answer, const char *key);

/* The process whose namespaces are to be joined; 0 if the answer names none. */
pid_t answer_pid(const struct answer *answer);

#endif
