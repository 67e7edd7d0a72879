"""What is printed and drawn from stored runs: tables, figures, the listing, the audit of the paper's own numbers,
and the published values they are put beside. May import sweeps and what is below; never commands. Trains
nothing.
"""
