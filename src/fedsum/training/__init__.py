"""The training core: options, state, one round, the loop over rounds, observers, history. It knows no folder."""
