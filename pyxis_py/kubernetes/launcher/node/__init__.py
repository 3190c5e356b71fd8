"""What runs in a pod for as long as the job lasts: the agent, and the batch host in pod 0."""
