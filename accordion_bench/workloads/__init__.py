"""What is learned: data sets, networks, and the tasks that join them. May import training, for the interface of a
task; never config (but for annotations), runs or anything above.
"""
