#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

struct given {
	int number;
	char *value;
	struct given *next;
};

static struct given *first;
static struct given **last = &first;

/* Those of the component before this one, in a heterogeneous step or job. */
static struct given *earlier;

static bool is_recorded(int number)
{
	for (const struct given *given = first; given != NULL; given = given->next)
		if (given->number == number)
			return true;
	return false;
}

/*
 * Slurm calls this for every occurrence on a command line. slurmstepd has one value of each flag,
 * and calls this for it twice (22.05: once at registration, once with all the job's options).
 */
static int record(int number, const char *value, int remote)
{
	struct given *given;

	if (remote && is_recorded(number))
		return 0;
	given = calloc(1, sizeof(*given));
	if (given == NULL)
		return -1;
	given->number = number;
	given->value = strdup(value != NULL ? value : "");
	if (given->value == NULL) {
		free(given);
		return -1;
	}
	*last = given;
	last = &given->next;
	return 0;
}

#define X(number, name, arginfo, has_arg, usage, variable) \
	{ (char *)(name), (char *)(arginfo), (char *)(usage), has_arg, number, record },
static struct spank_option table[] = {
#include "options_table.h"
};
#undef X

#define X(number, name, arginfo, has_arg, usage, variable) variable,
static const char *const variables[] = {
#include "options_table.h"
};
#undef X

#define OPTIONS (sizeof(table) / sizeof(table[0]))

int options_register(spank_t spank)
{
	for (size_t i = 0; i < OPTIONS; ++i) {
		spank_err_t error = spank_option_register(spank, &table[i]);

		if (error != ESPANK_SUCCESS) {
			slurm_error("pyxis: cannot register --%s: %s", table[i].name,
				    spank_strerror(error));
			return -1;
		}
	}
	return 0;
}

static bool is_set(spank_t spank, const char *name)
{
	char value[2];
	spank_err_t error;

	if (!spank_remote(spank))
		return getenv(name) != NULL;
	error = spank_getenv(spank, name, value, sizeof(value));
	return error == ESPANK_SUCCESS || error == ESPANK_NOSPACE;
}

bool options_any(spank_t spank)
{
	if (first != NULL)
		return true;
	for (size_t i = 0; i < OPTIONS; ++i)
		if (variables[i] != NULL && is_set(spank, variables[i]))
			return true;
	return false;
}

void options_add(struct request *request)
{
	for (const struct given *given = first; given != NULL; given = given->next) {
		AUTO_FREE char *text = NULL;

		if (asprintf(&text, "%d=%s", given->number, given->value) < 0) {
			text = NULL;
			request->failed = true;
			return;
		}
		request_add(request, "option", text);
	}
}

/* All values of one flag with a separator that no value has; NULL if there are not several. */
static char *join_values(int number, bool *failed)
{
	char *joined = NULL;
	int count = 0;

	for (const struct given *given = first; given != NULL; given = given->next) {
		char *longer = NULL;

		if (given->number != number)
			continue;
		if (asprintf(&longer, "%s%s%s", joined ? joined : "", joined ? "\036" : "",
			     given->value) < 0) {
			*failed = true;
			break;
		}
		free(joined);
		joined = longer;
		++count;
	}
	if (count > 1 && !*failed)
		return joined;
	free(joined);
	return NULL;
}

int options_keep_repeated(void)
{
	bool failed = false;

	for (size_t i = 0; i < OPTIONS; ++i) {
		char name[40];
		AUTO_FREE char *joined = table[i].has_arg ? join_values((int)i, &failed) : NULL;

		(void)snprintf(name, sizeof(name), "PYXIS_REPEATED_%zu", i);
		/* A job's environment may hold what was given at sbatch: it is not this step's. */
		if (joined == NULL)
			(void)unsetenv(name);
		else if (setenv(name, joined, 1) < 0)
			failed = true;
	}
	return failed ? -1 : 0;
}

static void free_list(struct given *list)
{
	while (list != NULL) {
		struct given *given = list;

		list = given->next;
		free(given->value);
		free(given);
	}
}

bool options_next_component(void)
{
	static bool is_first = true;
	const struct given *a = first, *b = earlier;
	bool same = true;

	while (a != NULL && b != NULL && a->number == b->number && strcmp(a->value, b->value) == 0) {
		a = a->next;
		b = b->next;
	}
	same = is_first || (a == NULL && b == NULL);
	is_first = false;
	free_list(earlier);
	earlier = first;
	first = NULL;
	last = &first;
	return same;
}

void options_free(void)
{
	free_list(first);
	free_list(earlier);
	first = earlier = NULL;
	last = &first;
}
