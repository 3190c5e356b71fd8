#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "plain.h"

struct given {
	int number;
	char *value;
	struct given *next;
};

static struct given *first;
static struct given **last = &first;

/* The flags of each component of a heterogeneous step, as text; Slurm takes no more of them. */
#define COMPONENTS 128
static struct {
	char *flags[COMPONENTS];
	size_t count;
	bool differ;
} components;

/*
 * What Slurm drops goes to the nodes in the environment: a name that begins with SLURM gets there
 * whatever --export says.
 */
#define REPEATED "SLURM_PYXIS_REPEATED_%zu"
#define COMPONENT "SLURM_PYXIS_COMPONENT_%zu"
/* Set by the keeper where the nodes can tell the components apart. */
#define GROUPS "SLURM_PYXIS_GROUPS"

/* Stands between values: none has it. */
#define SEPARATOR "\036"

static bool is_recorded(int number)
{
	for (const struct given *given = first; given != NULL; given = given->next)
		if (given->number == number)
			return true;
	return false;
}

static struct given *new_given(int number, const char *value, size_t size)
{
	struct given *given = calloc(1, sizeof(*given));

	if (given == NULL)
		return NULL;
	given->number = number;
	given->value = strndup(value, size);
	if (given->value == NULL) {
		free(given);
		return NULL;
	}
	return given;
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
	if (value == NULL)
		value = "";
	given = new_given(number, value, strlen(value));
	if (given == NULL)
		return -1;
	*last = given;
	last = &given->next;
	return 0;
}

#define X(number, name, arginfo, has_arg, usage, variable, field, plain) \
	{ (char *)(name), (char *)(arginfo), (char *)(usage), has_arg, number, record },
static struct spank_option table[] = {
#include "options_table.h"
};
#undef X

#define X(number, name, arginfo, has_arg, usage, variable, field, plain) { variable, field, plain },
static const struct {
	const char *variable;
	const char *field;
	enum plain plain;
} facts[] = {
#include "options_table.h"
};
#undef X

#define OPTIONS (sizeof(table) / sizeof(table[0]))

/* The values before the last of each flag that salloc got more than once. */
static char *inherited[OPTIONS];

/*
 * Slurm hands the last one on in a variable of its own, and takes that for the first on srun's
 * command line. Without it our variable is what the step that this srun runs in has left. To be
 * called before Slurm reads the command line: it writes to its variable then.
 */
static int inherit_values(int number)
{
	char name[80];
	const char *values, *handed, *tail;

	(void)snprintf(name, sizeof(name), "_SLURM_SPANK_OPTION_pyxis_%s", table[number].name);
	for (char *at = name; *at != '\0'; ++at)
		if (*at == '-')
			*at = '_';
	handed = getenv(name);
	(void)snprintf(name, sizeof(name), REPEATED, (size_t)number);
	values = getenv(name);
	tail = values != NULL ? strrchr(values, SEPARATOR[0]) : NULL;
	if (handed == NULL || tail == NULL || strcmp(tail + 1, handed) != 0)
		return 0;
	inherited[number] = strndup(values, (size_t)(tail - values));
	return inherited[number] != NULL ? 0 : -1;
}

int options_register(spank_t spank)
{
	for (size_t i = 0; i < OPTIONS; ++i) {
		spank_err_t error = spank_option_register(spank, &table[i]);

		if (error != ESPANK_SUCCESS) {
			slurm_error("pyxis: cannot register --%s: %s", table[i].name,
				    spank_strerror(error));
			return -1;
		}
		if (!spank_remote(spank) && inherit_values((int)i) < 0)
			return -1;
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
		if (facts[i].variable != NULL && is_set(spank, facts[i].variable))
			return true;
	return false;
}

static bool is_only_one(const struct given *one)
{
	const char *field = facts[one->number].field;

	for (const struct given *given = first; given != NULL; given = given->next)
		if (given != one && strcmp(facts[given->number].field, field) == 0)
			return false;
	return true;
}

bool options_plain(spank_t spank)
{
	bool enabled = false;

	for (size_t i = 0; i < OPTIONS; ++i)
		if (facts[i].variable != NULL && is_set(spank, facts[i].variable))
			return false;
	for (const struct given *given = first; given != NULL; given = given->next) {
		const char *field = facts[given->number].field;

		if (!is_plain(facts[given->number].plain, given->value) || !is_only_one(given))
			return false;
		if (strcmp(field, "image") == 0 || strcmp(field, "name") == 0)
			enabled = true;
	}
	return enabled;
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

/* Add a further value to a text of several; on failure the text is freed and NULL. */
static char *append(char *text, const char *before, const char *value)
{
	char *longer = NULL;

	if (asprintf(&longer, "%s%s%s%s", text ? text : "", text ? SEPARATOR : "", before,
		     value) < 0)
		longer = NULL;
	free(text);
	return longer;
}

/* All values of one flag; NULL if there are not several. */
static char *join_values(int number, bool *failed)
{
	char *joined = NULL;
	int count = 0;

	for (const struct given *given = first; given != NULL && !*failed; given = given->next) {
		if (given->number != number)
			continue;
		joined = append(joined, "", given->value);
		*failed = joined == NULL;
		++count;
	}
	if (count > 1)
		return joined;
	free(joined);
	return NULL;
}

/* A job's environment may hold what was given for the step that this one is started from. */
static void forget_components(void)
{
	char name[48];

	(void)unsetenv(GROUPS);
	for (size_t i = 0; i < COMPONENTS; ++i) {
		(void)snprintf(name, sizeof(name), COMPONENT, i);
		(void)unsetenv(name);
	}
}

/* Put inherited values before the one that Slurm has handed on. */
static int recall_values(int number)
{
	struct given **place = &first;

	while (*place != NULL && (*place)->number != number)
		place = &(*place)->next;
	for (const char *at = inherited[number]; at != NULL && *place != NULL;) {
		size_t size = strcspn(at, SEPARATOR);
		struct given *given = new_given(number, at, size);

		if (given == NULL)
			return -1;
		given->next = *place;
		*place = given;
		place = &given->next;
		at = at[size] != '\0' ? at + size + 1 : NULL;
	}
	return 0;
}

int options_keep_repeated(void)
{
	bool failed = false;

	if (components.count == 0)
		forget_components();
	for (size_t i = 0; i < OPTIONS; ++i)
		failed = recall_values((int)i) < 0 || failed;
	for (size_t i = 0; i < OPTIONS; ++i) {
		char name[48];
		AUTO_FREE char *joined = table[i].has_arg ? join_values((int)i, &failed) : NULL;

		(void)snprintf(name, sizeof(name), REPEATED, i);
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

/* salloc and sbatch call again for later components what was given to the first. */
static bool is_before(const struct given *one)
{
	for (const struct given *given = first; given != one; given = given->next)
		if (given->number == one->number && strcmp(given->value, one->value) == 0)
			return true;
	return false;
}

/* All flags of a component as one text, "" if it has none; NULL if memory ran out. */
static char *encode_component(void)
{
	char *text = NULL;

	if (first == NULL)
		return strdup("");
	for (const struct given *given = first; given != NULL; given = given->next) {
		char number[16];

		if (is_before(given))
			continue;
		(void)snprintf(number, sizeof(number), "%d=", given->number);
		text = append(text, number, given->value);
		if (text == NULL)
			return NULL;
	}
	return text;
}

static bool keep_components(void)
{
	char name[48];

	if (getenv(GROUPS) == NULL)
		return false;
	for (size_t i = 0; i < components.count; ++i) {
		(void)snprintf(name, sizeof(name), COMPONENT, i);
		if (setenv(name, components.flags[i], 1) < 0)
			return false;
	}
	return true;
}

bool options_next_component(void)
{
	size_t count = components.count;
	char *flags = count < COMPONENTS ? encode_component() : NULL;

	free_list(first);
	first = NULL;
	last = &first;
	if (flags == NULL)
		return false;
	components.flags[components.count++] = flags;
	if (count > 0 && strcmp(flags, components.flags[count - 1]) != 0)
		components.differ = true;
	return !components.differ || keep_components();
}

void options_free(void)
{
	free_list(first);
	first = NULL;
	last = &first;
	while (components.count > 0)
		free(components.flags[--components.count]);
	components.differ = false;
	for (size_t i = 0; i < OPTIONS; ++i) {
		free(inherited[i]);
		inherited[i] = NULL;
	}
}
