"""The commands that reach into a running job: `exec`, `shell`, `forward`, `dev` and those of SSH."""
