"""A run as a job: placed on devices, started, watched, stopped and resumed (run, launch, members, pulse, guard,
outcome, progress); and as a directory: written, locked, read back and verified (records, checkpoint,
persistence, lock, admission, stored, verify). May import config and what is below; never sweeps, report or
commands.
"""
