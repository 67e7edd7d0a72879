"""Adaptive gradient communication: reproduce, trust and extend Accordion (Agarwal et al., MLSys 2021)."""

__version__ = "0.1.0"
