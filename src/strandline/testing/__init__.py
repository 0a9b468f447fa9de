"""What tests need and production must never import: simulated histories, faults, checkers.

clock              shell  clocks of simulated processes and of the simulated store
conformance_tasks  shell  what every implementation of Tasks and Clock must show
node               shell  one simulated process: its ports, and the ways it can suffer
picking            shell  chooses which ready task runs next
scheduler          shell  runs tasks one at a time as greenlets, in simulation time
seeds              shell  runs one scenario under many seeds
simulation         shell  a whole history from one seed
streams            shell  chance: named streams from one seed, swarm options
task               shell  a simulated task, and the life of its process
trace              shell  who did what when, as a running hash and its last lines
waiting            shell  simulated events and conditions
"""
