"""Kernels of our own: Triton sources, the layers made of them, and which networks they fit."""
