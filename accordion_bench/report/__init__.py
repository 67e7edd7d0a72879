"""Reports: stored runs -> tables, figures, lists, and the published numbers beside them. No torch.

Reads records and nothing of a live run; may be used on a machine that has only results/.
"""
