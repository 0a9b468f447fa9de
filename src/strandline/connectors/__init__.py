"""Where rows enter: sources, their formats and their envelopes. Knows offsets, not our times.

position  pure   how far a source was taken, and the ranges that were taken from it
raw       pure   the columns in which every source gives its rows
registry  shell  connectors by name
secret    pure   values that may be used and never shown
source    pure   the Source port: what a source offers, and how anybody reads what was taken
"""
