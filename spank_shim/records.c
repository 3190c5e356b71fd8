#include "records.h"

#include <limits.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const known_keys[] = {
	"status", "error", "log", "info", "pid", "join", "unset", "env", "default",
	"copy", "cwd", "seccomp", "state", "finish", "setenv", "end",
};

static void append(struct request *request, const char *data, size_t size)
{
	if (request->failed)
		return;
	if (request->capacity - request->size < size) {
		size_t capacity = (request->capacity + size) * 2;
		char *grown = realloc(request->data, capacity);

		if (grown == NULL) {
			request->failed = true;
			return;
		}
		request->data = grown;
		request->capacity = capacity;
	}
	memcpy(request->data + request->size, data, size);
	request->size += size;
}

void request_add(struct request *request, const char *key, const char *value)
{
	append(request, key, strlen(key));
	append(request, "=", 1);
	append(request, value, strlen(value) + 1);
}

void request_add_number(struct request *request, const char *key, unsigned long value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%lu", value);
	request_add(request, key, text);
}

void request_add_all(struct request *request, const char *key, char *const *values)
{
	for (; values != NULL && *values != NULL; ++values)
		request_add(request, key, *values);
}

void request_free(struct request *request)
{
	free(request->data);
	memset(request, 0, sizeof(*request));
}

const char *record_value(const char *record, const char *key)
{
	size_t size = strlen(key);

	return strncmp(record, key, size) == 0 && record[size] == '=' ? record + size + 1 : NULL;
}

const char *answer_next(const struct answer *answer, const char *at)
{
	const char *next = at == NULL ? answer->data : at + strlen(at) + 1;

	return next < answer->data + answer->size ? next : NULL;
}

const char *answer_first(const struct answer *answer, const char *key)
{
	for (const char *at = answer_next(answer, NULL); at != NULL; at = answer_next(answer, at)) {
		const char *value = record_value(at, key);

		if (value != NULL)
			return value;
	}
	return NULL;
}

static pid_t parse_pid(const char *text)
{
	char *end = NULL;
	long number;

	if (*text < '1' || *text > '9')
		return -1;
	errno = 0;
	number = strtol(text, &end, 10);
	return errno == 0 && *end == '\0' && number <= INT_MAX ? (pid_t)number : -1;
}

pid_t answer_pid(const struct answer *answer)
{
	const char *text = answer_first(answer, "pid");

	return text == NULL ? 0 : parse_pid(text);
}

static bool is_known(const char *record)
{
	for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); ++i)
		if (record_value(record, known_keys[i]) != NULL)
			return true;
	return false;
}

/* NULL if a whole answer says what every answer has to. */
static const char *check(const struct answer *answer)
{
	const char *status;
	const char *last = NULL;

	for (const char *at = answer_next(answer, NULL); at != NULL; at = answer_next(answer, at)) {
		if (!is_known(at))
			return "it has a record that this plugin does not know: was the plugin "
			       "built for another version of the package?";
		last = at;
	}
	if (last == NULL || strcmp(last, "end=") != 0)
		return "it is incomplete";
	status = answer_first(answer, "status");
	if (status == NULL || (strcmp(status, "ok") != 0 && strcmp(status, "none") != 0 &&
			       strcmp(status, "error") != 0))
		return "it has no status";
	if (answer_pid(answer) < 0)
		return "its process number is none";
	return NULL;
}

static const char *read_all(struct answer *answer, int fd, size_t size)
{
	answer->data = malloc(size + 1);
	if (answer->data == NULL)
		return "there is no memory for it";
	while (answer->size < size) {
		ssize_t got = pread(fd, answer->data + answer->size, size - answer->size,
				    (off_t)answer->size);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return "it cannot be read";
		answer->size += (size_t)got;
	}
	/* Nothing that is read as a string can run over the end, whatever was written. */
	answer->data[size] = '\0';
	return NULL;
}

const char *answer_read(struct answer *answer, int fd)
{
	struct stat status;
	const char *fault;

	memset(answer, 0, sizeof(*answer));
	if (fstat(fd, &status) < 0)
		return "it cannot be read";
	if (status.st_size == 0)
		return "there is none";
	if (status.st_size < 0 || (size_t)status.st_size > ANSWER_LIMIT)
		return "it is too large";
	fault = read_all(answer, fd, (size_t)status.st_size);
	if (fault == NULL && answer->data[answer->size - 1] != '\0')
		fault = "it is incomplete";
	if (fault == NULL)
		fault = check(answer);
	if (fault != NULL)
		answer_free(answer);
	return fault;
}

void answer_free(struct answer *answer)
{
	free(answer->data);
	memset(answer, 0, sizeof(*answer));
}
