/* slurmd: the runtime folder, and what a job has left behind. */
#include "step.h"

#include <stdint.h>
#include <sys/types.h>

#include "keeper.h"
#include "records.h"
#include "runtime.h"

/* Slurm waits for an epilog; a node must come back even if a file system does not. */
#ifndef EPILOG_SECONDS
#define EPILOG_SECONDS 300
#endif

int node_init(int count, char **words)
{
	/* A node whose folder cannot be made still runs everything else. */
	(void)runtime_make(runtime_path(count, words));
	return 0;
}

int node_job_epilog(spank_t spank, int count, char **words)
{
	AUTO_REQUEST struct request request = { 0 };
	AUTO_ANSWER struct answer answer = { 0 };
	struct keeper_call call = {
		.verb = "epilog",
		.python = word_value(count, words, "python"),
		.request = &request,
	};
	uint32_t job = 0;
	uid_t uid = 0;
	gid_t gid = 0;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS) {
		slurm_error("pyxis: Slurm does not tell which job has ended");
		return 0;
	}
	if (!runtime_forget(runtime_path(count, words), job))
		return 0;
	request_add(&request, "version", PROTOCOL_VERSION);
	for (int i = 0; i < count; ++i)
		request_add(&request, "word", words[i]);
	request_add_number(&request, "uid", uid);
	request_add_number(&request, "gid", gid);
	request_add_number(&request, "job", job);
	/* An epilog that fails drains the node (Slurm's doing): a left folder is not worth that. */
	(void)keeper_ask(&call, EPILOG_SECONDS, &answer);
	return 0;
}
