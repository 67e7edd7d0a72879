"""Figures: one module a kind of picture, with the style and helpers that they share."""
