"""The faults of local servers again, with every server confined: what goes wrong is handled as without a sandbox."""

from collections.abc import Iterator

import pytest

from tests.support.gateway.gateway import SERVERS
from tests.upstreams import test_server, test_server_faults

pytestmark = pytest.mark.anyio

# Collected here too. The others are about definitions and approvals, which no sandbox changes.
test_d01_a_server_killed_under_a_call = (
    test_server_faults.test_d01_a_server_killed_under_a_call_fails_it_at_once_and_others_go_on
)
test_d01_a_server_that_crashes = (
    test_server_faults.test_d01_a_server_that_crashes_is_restarted_and_its_tools_stay_listed
)
test_d01_a_server_killed_while_idle = (
    test_server_faults.test_d01_a_server_killed_while_idle_is_hidden_and_can_be_started_again
)
test_d02_a_server_that_never_answers = (
    test_server_faults.test_d02_a_server_that_never_answers_the_handshake_times_out_and_is_stopped
)
test_d02_a_suspended_server = (
    test_server_faults.test_d02_a_call_to_a_suspended_server_times_out_and_is_cancelled_on_resume
)
test_d02_a_stuck_server = test_server_faults.test_d02_a_stuck_server_is_detected_after_a_timeout_and_can_be_restarted
test_d03_a_server_that_exits_at_once = (
    test_server_faults.test_d03_a_server_that_exits_at_once_is_not_started_over_and_over
)
test_d05_processes_that_a_server_made = test_server_faults.test_d05_processes_that_a_server_made_end_with_it
test_d06_the_death_of_a_server = (
    test_server_faults.test_d06_the_death_of_a_server_is_noticed_while_another_process_holds_its_output
)
test_d18_calls_cancelled_at_any_moment = test_server.test_d18_calls_cancelled_at_whatever_moment_leave_nothing_behind
test_d18_starts_and_stops_at_any_moment = test_server.test_d18_starts_and_stops_at_whatever_moment_leave_no_process
test_d21_a_server_that_does_not_read = test_server_faults.test_d21_a_server_that_does_not_read_holds_up_nobody_else
test_c14_a_list_that_never_ends = test_server_faults.test_c14_a_list_that_never_ends_is_an_error
test_c17_what_a_server_was_given = test_server.test_c17_what_a_server_was_given_is_in_no_error_no_event_and_no_log
test_c19_an_endless_result = (
    test_server_faults.test_c19_an_endless_result_fails_with_a_typed_error_and_the_next_call_works
)
test_c20_answers_that_nobody_waits_for = (
    test_server_faults.test_c20_answers_that_nobody_waits_for_are_nobodys_and_counted
)
test_c20_a_question_outside_of_any_call = (
    test_server_faults.test_c20_a_question_outside_of_any_call_is_answered_by_nobody_but_for_the_roots
)
test_c21_noise_between_messages = test_server_faults.test_c21_noise_between_messages_is_skipped_and_named
test_c22_what_is_written_to_stderr = (
    test_server_faults.test_c22_what_is_written_to_stderr_is_drained_kept_in_part_shown_and_no_failure
)


@pytest.fixture(autouse=True)
def confined(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(SERVERS, "confined", True)
    yield
