/* The plugin's hooks: which context has which. */
#include <slurm/spank.h>
#include <string.h>

#include "keeper.h"
#include "options.h"
#include "step.h"

SPANK_PLUGIN(pyxis, 1)

static bool is_refused(const char *text)
{
	static const char *const words[] = { "0", "no", "n", "false" };

	for (size_t i = 0; text != NULL && i < sizeof(words) / sizeof(words[0]); ++i)
		if (strcmp(text, words[i]) == 0)
			return true;
	return false;
}

/* sbatch and salloc take the flags unless the site does not want them to. */
static bool takes_flags(int count, char **words)
{
	return spank_context() != S_CTX_ALLOCATOR ||
	       !is_refused(word_value(count, words, "sbatch_support"));
}

int slurm_spank_init(spank_t spank, int count, char **words)
{
	switch (spank_context()) {
	case S_CTX_SLURMD:
		return node_init(count, words);
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE:
		return takes_flags(count, words) ? options_register(spank) : 0;
	default:
		return 0;
	}
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		return takes_flags(count, words) ? submit_post_opt(spank, count, words) : 0;
	case S_CTX_REMOTE:
		return step_post_opt(spank, count, words);
	default:
		return 0;
	}
}

int slurm_spank_user_init(spank_t spank, int count, char **words)
{
	(void)count;
	(void)words;
	return step_user_init(spank);
}

int slurm_spank_task_post_fork(spank_t spank, int count, char **words)
{
	(void)spank;
	(void)count;
	(void)words;
	return step_task_post_fork();
}

int slurm_spank_task_init(spank_t spank, int count, char **words)
{
	return step_task_init(spank, count, words);
}

int slurm_spank_task_exit(spank_t spank, int count, char **words)
{
	return step_task_exit(spank, count, words);
}

int slurm_spank_job_epilog(spank_t spank, int count, char **words)
{
	return node_job_epilog(spank, count, words);
}

int slurm_spank_exit(spank_t spank, int count, char **words)
{
	(void)spank;
	(void)count;
	(void)words;
	step_exit();
	return 0;
}
