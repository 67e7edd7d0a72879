"""Many runs: a table's rows (table, fields), the runs that they ask for (jobs), doing them (runner), and saying
beforehand what they will send and take (plan, dry_run). May import runs and what is below; never report or
commands.
"""
