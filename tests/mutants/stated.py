"""Faults in what a site states, in who is told of it, and in the refusals that follow from it [R23] [R9]."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

READINESS = "tests/core/dictionary/test_readiness.py"
AT_SITE = "tests/client/site/test_stated_settings.py"
SUBMITTED = "tests/server/planning/test_stated_settings.py"
PLANNER = "server/eigenveil_server/planning/planner.py"
CLIENT = "client/eigenveil_client"
NAMED = "::test_a_decline_names_a_stated_setting_to_an_analyst_who_is_not_known"
LACKING = "::test_a_column_that_one_site_does_not_offer_forbids_the_study_whatever_its_quorum"
LOWERED = f"{AT_SITE}::test_memory_that_was_lowered_since_a_study_came_is_shown_and_not_approved"
UNFIT = "::test_a_setting_that_does_not_fit_is_named_with_the_value_that_would"

OF_STATED: tuple[Mutant, ...] = (
    # ---- refusals at submission
    of("R23", "dictionary/readiness.py", "one.site in federation.required for one in unready",
       "False for one in unready",
       READINESS + UNFIT),
    of("R23", "dictionary/readiness.py", "any(one.lacking or one.site", "any(one.site", READINESS + LACKING),
    of("R23", "dictionary/readiness.py",
       "tuple(name for name in names if name not in offers)", "()", READINESS + LACKING),
    of("R23", f"{CLIENT}/analyst/python/study.py", "            check_study(self.study, self.directory)\n",
       "            pass\n",
       "tests/integration/test_dictionary.py::test_missing_sites_and_columns_are_reported_before_submission"),
    *each("R23", PLANNER,
          f"{SUBMITTED}::test_records_that_do_not_fit_into_memory_are_told_before_they_are_loaded",
          ("        *check_readiness(plan, sites),\n", ""), ("readiness(plan, public, round_queries)",
          "readiness(plan, public)")),
    of("R23", "dictionary/site_limits.py", "size <= memory_mib", "True", READINESS + UNFIT),
    of("R23", "dictionary/site_limits.py", "any(needs_all_rows(one.query) for one in round_queries)", "True",
       f"{READINESS}::test_memory_is_compared_only_if_a_query_needs_all_records_at_once"),
    of("R23", "dictionary/site_limits.py", "records >= parts * least", "records >= parts", READINESS + UNFIT),
    of("R23", "dictionary/readiness.py", "max(allowed, plan.fewest_batches)", "allowed",
       f"{READINESS}::test_free_batches_are_as_many_as_the_stated_settings_allow"),
    # ---- what a site states, and what a decline names
    *each("R23", f"{CLIENT}/site/config.py", f"{AT_SITE}::test_a_site_toml_of_1_0_states_no_more_than_before",
          ("config.limits if config.policy.disclose_settings else None", "config.limits")),
    of("R9", f"{CLIENT}/site/daemon/decisions.py",
       "if rule and not analysts.ever_confirmed(folder, plan.analyst):", "if False:",
       "tests/client/site/daemon/test_consent.py"
       "::test_a_decline_names_its_rule_in_every_life_to_an_analyst_who_is_known"),
    *each("R9", f"{CLIENT}/site/policy.py", AT_SITE + NAMED,
          ("self.limits.verdicts(plan) if self.disclose_settings else ()", "self.limits.verdicts(plan)"),
          ('rule if rule in failed else next(iter(failed), "")', "rule")),
    of("R9", f"{CLIENT}/site/policy.py", "rule == MEMORY_RULE and self.disclose_settings",
       "rule == MEMORY_RULE",
       f"{AT_SITE}::test_memory_that_is_too_small_is_named_before_anything_is_loaded"),
    # ---- before a person agrees
    of("TM23", f"{CLIENT}/site/commands/consent.py",
       "possible_rehearsals(plan)).require()", "possible_rehearsals(plan))", LOWERED),
    of("TM23", f"{CLIENT}/site/commands/consent.py", "        engine_verdict(config, plan, courses),\n", "",
       LOWERED),
    *each("TM23", f"{CLIENT}/site/commands/record_checks.py",
          f"{AT_SITE}::test_a_column_that_the_records_lack_is_shown_by_explain_and_nothing_of_it_leaves",
          ("passed=not missing", "passed=True"), (", config.records.person)", ', "")'),
          ("            headers.find_person(config.person_header)\n", "            pass\n")),
    of("R9", f"{CLIENT}/site/daemon/decisions.py", "for one in course]).require()", "for one in course])",
       f"{AT_SITE}::test_memory_that_is_too_small_is_named_before_anything_is_loaded"),
)  # fmt: skip
