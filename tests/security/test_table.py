"""Which test makes each attack that was once done for real. Most lie beside what they attack."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BODIES = (
    "tests/api/test_bodies.py",
    "tests/security/test_requests.py",
    "tests/torchyard/contract/wire/test_findings.py",
)
SESSIONS = "tests/security/test_stolen_cookies.py"
READING = "tests/worker/packages/test_reading.py"
ATTACKS: dict[str, dict[str, str]] = {
    "1: a package's build opens the sandbox": {
        "the environment becomes a link": "tests/security/test_builds.py::test_a_package_opens_nothing_to_its_job",
        "any part of a path is a link": "tests/security/test_rules.py::test_no_part_of_a_path_may_be_a_link",
        "a folder of the attempt becomes a link": "tests/security/test_rules.py"
        "::test_no_attempt_gets_what_a_link_in_place_of_its_folder_leads_to",
        "a rule contains the data directory": "tests/security/test_rules.py"
        "::test_no_attempt_gets_a_folder_that_contains_its_run_directory",
        "a rule lies in the data directory": "tests/security/test_rules.py"
        "::test_no_attempt_gets_what_else_lies_in_the_data_directory",
        "the working directory becomes a link": "tests/security/test_rules.py"
        "::test_no_attempt_starts_in_a_folder_that_became_a_link",
        "the code folder becomes a link while it is read": f"{READING}"
        "::test_a_link_that_takes_the_place_of_the_folder_or_the_file_is_not_followed",
    },
    "2: a request without a token": {
        "long headers": "tests/security/test_requests.py::test_a_large_header_is_answered_and_a_larger_one_is_refused",
        "expressions over text of others": "tests/security/test_patterns.py"
        "::test_every_expression_takes_steps_by_the_length_of_the_text",
        "logins of a thousand unknown keys": f"{BODIES[1]}"
        "::test_a_body_without_a_token_costs_little_and_is_counted_by_its_address",
        "a thousand findings of one body": f"{BODIES[2]}::test_twice_as_many_wrong_keys_cost_no_more_words",
        "specs that hold the event loop": f"{BODIES[0]}"
        "::test_a_body_of_some_hundred_bytes_is_parsed_in_a_turn_of_its_user",
    },
    "3: a job freezes the worker": {
        "slow text": f"{READING}::test_slow_text_ends_the_process_that_reads_it_while_the_worker_goes_on",
        "a parser in the worker": "tests/test_imports.py::test_each_rule_between_packages_is_kept",
        "large text": f"{READING}::test_what_is_too_large_is_refused_with_its_size",
        "a bundle that takes long to unpack": "tests/worker/bundles/test_hostile.py"
        "::test_a_tar_that_takes_too_long_or_too_much_is_refused_for_ever",
    },
    "4: one member starves all": {
        "forty reads": "tests/api/test_reads.py::test_forty_heavy_reads_of_one_user_leave_others_their_answers",
        "all threads": "tests/api/test_turns.py::test_a_user_has_few_threads_and_leaves_one_to_others",
        "reads whose client has left": "tests/api/test_reads.py::test_a_search_ends_when_its_client_leaves",
        "writes of wrong tokens": "tests/security/test_busy_writer.py"
        "::test_the_audit_of_wrong_tokens_keeps_nobody_from_signing_in",
        "a series of millions of points": "tests/api/test_long_series.py"
        "::test_the_memory_of_a_read_does_not_grow_with_the_points",
    },
    "5: a job's web server takes a session": {
        "the cookie alone": f"{SESSIONS}::test_the_cookie_of_a_visitor_opens_no_call",
        "a cookie that a job plants": f"{SESSIONS}"
        "::test_the_cookie_of_another_account_that_a_job_plants_is_not_taken_for_the_visitors",
        "a link of a stranger": "web/src/shell/session.test.ts"
        "::a link's code is not spent before its account is accepted",
    },
    "6: a job that nobody can end": {
        "ten years of grace": "tests/worker/attempts/test_intents.py::test_a_grace_above_the_workers_maximum_is_cut",
        "every stop is ignored": "tests/e2e/test_intents.py::test_a_job_that_ignores_every_stop_is_ended",
        "its owner is disabled": "tests/e2e/test_intents.py"
        "::test_the_jobs_of_a_disabled_user_end_whatever_their_grace_is",
        "the time limit": "tests/worker/test_supervisor_stops.py::test_the_time_limit_kills_whatever_the_grace_is",
        "it is private, and its owner is away": "tests/torchyard/cli/test_team.py"
        "::test_an_operator_kills_a_private_job_of_others_and_nobody_else_does",
    },
    "7: floods": {
        "points": "tests/security/test_floods.py"
        "::test_a_flood_of_points_is_cut_counted_and_told_once_and_the_job_goes_on",
        "points of many attempts": "tests/security/test_floods.py::test_attempts_of_one_job_have_one_limit_of_points",
        "points over the quota": "tests/security/test_floods.py"
        "::test_over_the_quota_points_are_thinned_at_once_and_no_job_is_resumed",
        "open descriptors": "tests/worker/attempts/files/test_writers.py"
        "::test_no_process_is_looked_at_where_there_are_leases",
        "few bytes that stand for many": "tests/api/test_bundles.py"
        "::test_nothing_is_left_of_a_request_with_a_small_body_for_many_bytes",
    },
    "8: smaller": {
        "formulas in the CSV of the command line": "tests/torchyard/cli/test_commands.py"
        "::test_a_spreadsheet_runs_no_name_of_a_metric",
        "formulas in the CSV of the page": "web/src/charts/line.test.ts"
        "::a spreadsheet runs no name, as in the CSV of the command line",
        "other places than the operator's index": f"{READING}::test_an_included_file_reaches_no_other_index",
        "words of a full disk": "tests/worker/packages/test_installation.py::test_words_of_a_build_are_no_evidence",
        "a download after its token": "tests/api/test_reads.py::test_a_download_ends_with_the_token",
        "secrets as names": "tests/security/test_masked.py::test_no_row_has_the_value_of_a_secret",
        "namespaces inside a job": "tests/security/test_levels.py"
        "::test_a_job_makes_namespaces_where_the_operator_allows_that",
        "the slow parser of cookies": "tests/security/test_requests.py"
        "::test_only_plain_cookies_reach_the_parser_of_the_framework",
        "a Python with that parser": "tests/worker/test_doctor.py"
        "::test_a_python_with_the_slow_parser_of_cookies_is_named",
    },
}
NAMED = [name for attacks in ATTACKS.values() for name in attacks.values()]


@pytest.mark.parametrize("name", dict.fromkeys(NAMED))
def test_each_attack_has_a_test_that_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert test in _tests_in(file), name


@cache
def _tests_in(file: str) -> frozenset[str]:
    text = (ROOT / file).read_text()
    if file.endswith(".ts"):
        return frozenset(line.split('"')[1] for line in text.splitlines() if line.startswith('test("'))
    return frozenset(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
