"""The job as every process of it sees it: job.json, hosts, variables, names, shares."""
