"""ToolkenGPT: one trained row of the output layer for each tool, on a frozen model (Hao et al., 2023).

The public names are in `toolwire.learn`.
"""
