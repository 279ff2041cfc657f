"""The environments of jobs with packages of their own: installed once for each owner, on the worker's torch."""
