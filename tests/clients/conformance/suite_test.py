"""What counts as a pass of the official suite. Prints what libtest does."""

import contextlib
import io
import unittest

import suite


def check(id, status):
    return {"id": id, "status": status}


WELL = [check("a", "SUCCESS"), check("note", "INFO")]


def well(outcomes, expected=None):
    with contextlib.redirect_stdout(io.StringIO()):
        return suite.report(outcomes, expected or {})


class Reading(unittest.TestCase):
    def test_success_and_notes_are_well(self):
        self.assertTrue(well({"one": WELL, "two": WELL}))

    def test_any_other_status_is_not(self):
        for status in ["FAILURE", "WARNING", "SKIPPED"]:
            self.assertFalse(well({"one": WELL, "two": [*WELL, check("b", status)]}), status)

    def test_nothing_checked_is_not(self):
        for checks in [[], [check("note", "INFO")]]:
            self.assertFalse(well({"one": WELL, "two": checks}))
        self.assertFalse(well({}))

    def test_what_is_expected_to_fail_must_fail(self):
        expected = {("one", "b"): "the suite asks for what the protocol forbids"}
        self.assertTrue(well({"one": [*WELL, check("b", "FAILURE")]}, expected))
        self.assertFalse(well({"one": [*WELL, check("b", "SUCCESS")]}, expected))
        self.assertFalse(well({"one": WELL}, expected), "the check is gone")
        self.assertFalse(well({"two": WELL}, expected), "the scenario is gone")
        self.assertFalse(well({"two": [*WELL, check("b", "FAILURE")], "one": [check("b", "FAILURE")]}, expected))

    def test_scenarios_of_extensions_are_left_out_and_no_others(self):
        listed = "Server scenarios:\n  - ping [2025-06-18,2025-11-25]\n  - tasks-mrtr-input [extension]\n  - caching [2026-07-28]\n"
        self.assertEqual(suite.of_extensions(listed), {"tasks-mrtr-input"})

    def test_expectations_are_of_one_revision_and_have_reasons(self):
        text = "# a comment\n\n2025-11-25 ping b it is wrong\n2026-07-28 tools-list c it is wrong too\n"
        self.assertEqual(suite.expected_failures(text, "2025-11-25"), {("ping", "b"): "it is wrong"})
        with self.assertRaises(ValueError):
            suite.expected_failures("2025-11-25 ping b\n", "2025-11-25")


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"test result: {'FAILED' if failed else 'ok'}. {outcome.testsRun - failed} passed; {failed} failed;")
    raise SystemExit(bool(failed))
