"""What is typed: one module a subcommand, with its options, its help and what it prints. May import every other
room, and does so when a command runs, so that --help stays quick; nothing imports it.
"""
