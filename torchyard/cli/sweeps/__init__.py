"""The commands of sweeps: many jobs that differ in some keys, as one."""
