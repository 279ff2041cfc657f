"""The index of all commands: where each is defined, in which group its help stands, and what it does in a line.

A command's module is imported when the command runs: the others cost nothing. The line equals the first one of the
command's own help.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A command of the command line."""

    target: str
    """The module below `torchyard.cli`, and the function or the group in it: `jobs:cancel`."""
    summary: str


EVERYDAY: dict[str, Command] = {
    "run": Command("run.commands:run", "Run a program from this folder as a job, and follow it."),
    "submit": Command("submission:submit", "Submit jobs or a sweep from files."),
    "ps": Command("listing:ps", "List jobs, newest first."),
    "show": Command("jobs:show", "Show a job, its model card and its checkpoints."),
    "logs": Command("telemetry:logs", "Print a job's output."),
    "metrics": Command("telemetry:metrics", "Print a job's metrics: last, min and max, or the curves."),
    "why": Command("why:why", "Explain why a job waits, or how it ended."),
    "cancel": Command("jobs:cancel", "Cancel jobs."),
    "resume": Command("jobs:resume", "Resume paused jobs."),
    "download": Command("checkpoints:download", "Download a checkpoint or a model."),
    "sweep": Command("sweeps.commands:sweep", "Manage sweeps: many jobs that differ in some settings."),
    "models": Command("models:models", "Save checkpoints as versions of a model."),
    "open": Command("page:open_page", "Open the service's web page in a browser."),
    "login": Command("login:login", "Log in to a server."),
    "help": Command("topics:show_help", "Show a page of the documentation, or the help of a command."),
}
"""What everybody needs. It stands first in the help, without a heading of a group."""

GROUPS: dict[str, dict[str, Command]] = {
    "Jobs": {
        "pause": Command("jobs:pause", "Pause jobs."),
        "retry": Command("submission:retry", "Submit a finished job again."),
        "wait": Command("wait:wait", "Wait for jobs to finish."),
        "edit": Command("editing:edit", "Change the name, labels, notes or priority of jobs."),
        "share": Command("jobs:share", "Share jobs with all users of the server."),
        "star": Command("editing:star", "Star jobs."),
        "archive": Command("editing:archive", "Archive finished jobs."),
        "rm": Command("removing:rm", "Delete finished jobs and everything they stored."),
        "dev": Command(
            "reach.dev:dev",
            "Start an interactive job, and open a shell in it.",
        ),
        "exec": Command("reach.programs:execute", "Run a program inside a running job."),
        "shell": Command("reach.programs:shell", "Open a shell inside a running job."),
        "forward": Command("reach.ports:forward", "Forward ports of a running job to this machine."),
        "ssh-config": Command("reach.ssh:ssh_config", "Print the ~/.ssh/config entry that lets ssh reach jobs."),
        "ssh-proxy": Command("reach.ssh:ssh_proxy", "Connect ssh to a running job (ssh runs this)."),
        "stacks": Command("stacks:stacks", "Print the Python stacks of each rank of a running job."),
        "checkpoints": Command("checkpoints:checkpoints", "List a job's checkpoints, newest first."),
        "cp": Command("copying:cp", "Copy a job's files to this machine."),
        "keep": Command("keeping:keep", "Store files from a job's working folder."),
        "validate": Command("submission:validate", "Check a job spec, and print it with its defaults."),
    },
    "Experiments": {
        "compare": Command("compare:compare", "Compare jobs: states, metrics and settings."),
        "schedules": Command("schedules:schedules", "Submit jobs on a schedule, like cron."),
    },
    "Data and models": {
        "data": Command("data:data", "Upload data for jobs, or pack it into shards."),
        "predict": Command("predict:predict", "Predict with a recipe's checkpoint."),
        "export": Command("export:export", "Export a checkpoint's model to another format."),
    },
    "Account": {
        "logout": Command("login:logout", "Log out of a server."),
        "servers": Command("login:servers", "List your servers, or choose one."),
        "whoami": Command("login:whoami", "Show your user, role and token."),
        "tokens": Command("tokens:tokens", "Create, list and revoke tokens."),
        "secrets": Command("secrets:secrets", "Manage secrets, such as API keys."),
        "notifications": Command("notify:notify", "Manage notification channels."),
    },
    "Team": {
        "users": Command("users:users", "Manage users."),
        "quotas": Command("quota:quota", "Show or set quotas."),
        "usage": Command("device_hours:usage", "Show device-hours by user, and GPU utilization."),
        "audit": Command("audit:audit", "Show the audit log, newest first."),
    },
    "Cluster": {
        "workers": Command("workers:workers", "Manage workers: the machines that run jobs."),
        "queue": Command("cluster:queue", "List queued jobs, the next to start first."),
        "top": Command("top:top", "Watch devices, the queue and the jobs finished today."),
        "envs": Command("environments:envs", "List the Python environments that workers offer."),
        "drain": Command("cluster:drain", "Drain workers: requeue their jobs, and start no new ones."),
        "undrain": Command("cluster:undrain", "Undrain workers: let them start jobs again."),
    },
    "Service": {
        "up": Command("up.commands:up", "Start the service on this machine."),
        "join": Command("join:join", "Run this machine as a worker of another machine's service."),
        "down": Command("up.commands:down", "Stop the service on this machine."),
        "status": Command("up.commands:status", "Show the service on this machine."),
        "demo": Command("up.commands:demo", "Train a small model on digits, and check its checkpoint."),
        "du": Command("du:du", "Show how much storage your jobs use."),
        "doctor": Command("host:doctor", "Check this machine, and print how to fix each problem."),
        "backup": Command("host:backup", "Back up the database and the checkpoints."),
        "restore": Command("host:restore", "Restore a backup."),
    },
}
"""The others, below the headings of their groups. A heading is never typed."""

COMMANDS: dict[str, Command] = {**EVERYDAY, **{name: each for group in GROUPS.values() for name, each in group.items()}}

RENAMED = {
    "notify": "notifications",
    "quota": "quotas",
    "list": "ps",
    "ls": "ps",
    "delete": "rm",
    "config": "run --config",
    "init": "run --init",
}
"""Names that people try, and the command that they mean."""

VERBS = {"list": "ls", "new": "add", "delete": "rm", "remove": "rm", "revoke": "rm", "clear": "rm", "change": "set"}
"""The same for what a noun is followed by: every noun has these verbs."""

FILES = {"sweep": "submit FILE"}
"""Nouns that took a file, and the command that takes it."""

MAKERS = {"schedules": "run --schedule", "sweep": "run --sweep"}
"""Nouns without `add`, and the command that makes one."""

OPTIONS: dict[str, dict[str, str]] = {"edit": {"--having": "--label", "--unlabel": "--remove-label"}}
"""The same for the options of a command."""
