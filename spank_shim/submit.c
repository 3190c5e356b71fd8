/* srun, sbatch, salloc: check what was given before anything is submitted. */
#include "step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "keeper.h"
#include "options.h"
#include "records.h"

/* A registry may be slow; nobody waits longer at a prompt. */
#ifndef SUBMIT_SECONDS
#define SUBMIT_SECONDS 180
#endif

extern char **environ;

static int set_variables(const struct answer *answer)
{
	for (const char *at = answer_next(answer, NULL); at != NULL; at = answer_next(answer, at)) {
		const char *text = record_value(at, "setenv");
		AUTO_FREE char *copy = text != NULL ? strdup(text) : NULL;
		char *equals = copy != NULL ? strchr(copy, '=') : NULL;

		if (text == NULL)
			continue;
		if (equals == NULL || equals == copy)
			return -1;
		*equals = '\0';
		if (setenv(copy, equals + 1, 1) < 0)
			return -1;
	}
	return 0;
}

/* The words of srun's own command line: they say which component goes where. */
static void add_command_line(struct request *request)
{
	FILE *file = fopen("/proc/self/cmdline", "re");
	char *word = NULL;
	size_t size = 0;

	while (file != NULL && getdelim(&word, &size, '\0', file) > 0)
		request_add(request, "command", word);
	free(word);
	if (file != NULL)
		(void)fclose(file);
}

/* Whether a step may have several components, whose places the keeper finds out. */
static bool has_components(void)
{
	FILE *file = fopen("/proc/self/cmdline", "re");
	char *word = NULL;
	size_t size = 0;
	bool found = file == NULL;

	while (!found && getdelim(&word, &size, '\0', file) > 0)
		found = strcmp(word, ":") == 0;
	free(word);
	if (file != NULL)
		(void)fclose(file);
	return found;
}

static int submit(spank_t spank, int count, char **words)
{
	AUTO_REQUEST struct request request = { 0 };
	AUTO_ANSWER struct answer answer = { 0 };
	struct keeper_call call = {
		.verb = "local",
		.python = word_value(count, words, "python"),
		.request = &request,
		.own_environ = true,
	};

	if (options_keep_repeated() < 0) {
		slurm_error("pyxis: cannot change the environment");
		return -1;
	}
	if (!options_any(spank))
		return 0;
	if (options_plain(spank) && !has_components())
		return 0;
	request_add(&request, "version", PROTOCOL_VERSION);
	for (int i = 0; i < count; ++i)
		request_add(&request, "word", words[i]);
	options_add(&request);
	request_add(&request, "context", program_invocation_short_name);
	add_command_line(&request);
	request_add_all(&request, "env", environ);
	if (keeper_ask(&call, SUBMIT_SECONDS, &answer) < 0)
		return -1;
	if (set_variables(&answer) < 0) {
		slurm_error("pyxis: cannot change the environment");
		return -1;
	}
	return 0;
}

/* Slurm calls this for every component of a heterogeneous step or job. */
int submit_post_opt(spank_t spank, int count, char **words)
{
	int outcome = submit(spank, count, words);

	if (options_next_component())
		return outcome;
	if (spank_context() == S_CTX_ALLOCATOR)
		slurm_error("pyxis: Slurm gives all components of a job the same plugin flags: give "
			    "them to the first, or to each step's srun where they are to differ");
	else
		slurm_error("pyxis: Slurm gives all components of a heterogeneous step the same "
			    "plugin flags; where they are to differ use pyxis-srun");
	return -1;
}
