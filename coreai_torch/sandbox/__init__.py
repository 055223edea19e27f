"""Run what may crash, hang or take too much memory in a child process.

`child.Child` is the process with its pipes and limits. `step` forks for one native step, `call`
starts an interpreter for one call, and `command` runs a whole command in a child.
"""
