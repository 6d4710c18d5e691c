"""Judging elsewhere.

In: a kernel that somebody else is to judge. Out: an Evaluation, checked before it is believed.
A folder of jobs: `job_store` is its format, `job_client` asks, `worker` answers, `worker_payload` copies the code
that a worker runs: Python, torch and the standard library are enough.
A Ray cluster: `ray_client` asks, `ray_task` answers, `ray_head` is a cluster of this machine. The only importer of Ray.
Both answer with `job_judge`.
GPU MODE's service: `popcorn_client` is its wire, `popcorn_submission` makes each submission once, `popcorn_results`
reads answers.
Stages and the command `worker` import it. It judges nothing itself: `ksflow.evaluation.judge` does.
"""
