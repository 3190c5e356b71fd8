"""What runs in the pods of a job: the batch host, the agents, and Slurm's commands for the script.

It travels as a zipapp into images that have any Python from 3.8 on, and nothing else: the modules
of this package use the standard library of 3.8 and one another, and nothing else of this project.
"""
