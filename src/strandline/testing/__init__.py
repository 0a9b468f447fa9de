"""What tests need and production must never import: simulated histories, faults, checkers.

clock              shell  clocks of simulated processes and of the simulated store
conformance        shell  what every Blob and every Consensus must show
conformance_tasks  shell  what every implementation of Tasks and Clock must show
damage             shell  objects that are no longer what was put
disk               shell  a disk that forgets what was not synced when the power goes
faults             shell  stores that fail on purpose
node               shell  one simulated process: its ports, and the ways it can suffer
picking            shell  chooses which ready task runs next
scheduler          shell  runs tasks one at a time as greenlets, in simulation time
seeds              shell  runs one scenario under many seeds
simulation         shell  a whole history from one seed
specimen           shell  a small store with every kind of object in it, to be damaged
streams            shell  chance: named streams from one seed, swarm options
task               shell  a simulated task, and the life of its process
toy                pure   shards whose rows are small numbers, and what a reader would see
trace              shell  who did what when, as a running hash and its last lines
waiting            shell  simulated events and conditions
"""
