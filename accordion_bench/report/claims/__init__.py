"""What the tables show of the paper's claims: tests on seed-paired runs (statistics), a verdict for each claim
(verdicts), the paper's numbered statements beside them (numbered), and all of it as text (text).
"""
