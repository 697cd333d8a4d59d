"""Faults in what is charged, reserved, stored and published, and by whom."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

DIGITS = "tests/core/accounting/test_digits.py"
CONVERSION = "tests/core/accounting/test_conversion.py"
CHECKPOINTS = "server/eigenveil_server/recovery/checkpoints.py"
DRIVERS = "server/eigenveil_server/rounds/drivers.py"
SEALING = "server/eigenveil_server/rounds/sealing.py"
MIGRATIONS = "tests/common/storage/test_migrations.py"
TEST_LEDGER = "tests/core/accounting/test_ledger.py"
TEST_COSTS = "tests/core/study/test_price.py"
TEST_NEXT_QUERY = "tests/server/studies/test_next_query.py"
TEST_ONE_SYNC = "tests/server/studies/test_one_sync.py"
TEST_CHECKPOINTS = "tests/server/recovery/test_checkpoints.py"
ONE_SYNC = (
    f"{TEST_ONE_SYNC}::test_a_release_is_one_transaction_with_its_charge_and_the_next_question_another_one"
)
TREE = "tests/repo/test_amounts_of_privacy_are_rounded_to_one_side.py::test_python_rounds_no_amount_by_itself"
LOST_OF_ANY = f"{TEST_CHECKPOINTS}::test_what_was_lost_where_any_noise_was_admitted_is_charged_as_of_any"
COMMITTED = f"{TEST_CHECKPOINTS}::test_after_every_row_a_checkpoint_states_what_is_spent_and_reserved"
WITH_WORK = f"{TEST_CHECKPOINTS}::test_sites_are_given_the_head_with_their_work"
STORE = "client/eigenveil_client/site/state/store.py"
ACCEPT_LOSS = "server/eigenveil_server/recovery/accept_loss.py"
TEST_ROLLBACK_GUARD = "tests/client/site/state/test_rollback_guard.py"

OF_LEDGERS: tuple[Mutant, ...] = (
    of("P4", "protocol/query.py", "self.priced.cost",
       'Cost(micro_rho=0) if NAMES[type(self.query)] == "squared-norm-sum" else self.priced.cost',
       "tests/core/mechanisms/test_drawn.py"
       "::test_every_query_is_charged_unless_it_is_a_later_batch_of_a_pass"),
    of("P4", "common/eigenveil_common/storage/ledger_store.py", "round_query.cost",
       'Cost(micro_rho=0) if "SquaredNormSum" in str(type(round_query.query)) else round_query.cost',
       "tests/server/storage/test_ledger.py"),
    of("P4", "accounting/ledger.py", "self.committed() + entry.cost", "entry.cost",
       f"{TEST_LEDGER}::test_a_refused_request_changes_nothing"),
    *each("P4", "accounting/ledger.py", TEST_LEDGER,
          ("entry.micro_rho > left[0] or ", ""), (" or entry.atto_delta > left[1]", ""),
          ("if self.knows(entry.study)", "if entry.study in self.open_amounts")),
    of("P4", "common/eigenveil_common/storage/ledger_store.py",
       "if study not in self.ledger.open_amounts:", "if False:",
       "tests/client/site/state/test_person_counts.py"),
    of("P8", "client/eigenveil_client/site/state/egress.py", "left[study, round] < times", "False",
       "tests/client/site/state/test_attempts.py"),
    of("P4", "protocol/query_limits.py", "(spent + round_query.cost)", "round_query.cost",
       f"{TEST_COSTS}::test_own_deltas_add_up"),
    of("P4", "protocol/query_limits.py", "spent_pico + pico_epsilon", "pico_epsilon",
       f"{TEST_COSTS}::test_epsilons_add_up_as_they_are"),
    of("P5", "accounting/zcdp.py", "- math.log1p", "- 2 * math.log1p",
       "tests/core/accounting/test_zcdp.py::test_delta_is_the_minimum_over_all_orders"),
    of("P4", "protocol/query_limits.py", "_check_gaussian(plan, round_query)", "pass",
       f"{TEST_COSTS}::test_a_guarantee_in_mu_is_for_gaussian_noise_alone"),
    of("P4", "protocol/query_limits.py", " or round_query.priced.atto_delta != plan.masked_delta:", ":",
       f"{TEST_COSTS}::test_a_guarantee_in_mu_is_for_gaussian_noise_alone"),
    of("P4", "client/eigenveil_client/site/state/outgoing.py",
       "check_composition(plan, round_query, cost, ledger.pico_by_study[round_query.plan_digest])", "pass",
       "tests/client/site/test_prices.py"),
    *each("P4", "accounting/ledger.py", TEST_LEDGER, ("self.gaussian and reserving", "reserving"),
          ("not gaussian and self.budget.gaussian is not None", "False")),
    of("P4", "accounting/checkpoint.py", "gaussian=gaussian,\n            trail",
       "gaussian=True,\n            trail",
       "tests/core/accounting/test_checkpoint.py"),
    of("P4", "client/eigenveil_client/site/state/rollback.py", 'stored.get("gaussian") is True', "True",
       TEST_ROLLBACK_GUARD),
    of("P4", STORE, "gaussian and ledger.gaussian", "gaussian", "tests/client/site/commands/test_consent.py"
       "::test_a_yearly_limit_is_counted_in_zcdp_once_other_noise_was_charged"),
    of("P4", "accounting/ledger.py", "self.budget.gaussian is not None)", "gaussian)", TEST_LEDGER),
    of("P4", CHECKPOINTS, "gaussian=totals.gaussian", "gaussian=True", LOST_OF_ANY),
    of("R20", ACCEPT_LOSS, "await_checkpoints(change, waiting)", "pass",
       f"{TEST_CHECKPOINTS}::test_a_later_head_stops_the_coordinator_until_the_loss_is_charged"),
    of("R20", ACCEPT_LOSS, "max(0, checkpoint.committed.micro_rho - max(one.micro_rho for one in known))",
       "checkpoint.committed.micro_rho - max(one.micro_rho for one in known)", f"{TEST_CHECKPOINTS}"
       "::test_rounds_that_no_site_has_seen_charged_are_lost_with_their_reservation"),
    of("R20", CHECKPOINTS, "[totals.committed]", "[totals.spent]", WITH_WORK),
    of("R20", "accounting/ledger.py", "left[0] - amount[0], left[1] - amount[1]", "left", COMMITTED),
    of("R20", "accounting/ledger.py", "self.open_amounts.pop(study, None)", "None", COMMITTED),
    of("P4", ACCEPT_LOSS, "checkpoint.gaussian", "True", LOST_OF_ANY),
    of("P4", STORE, "also=also, gaussian=plan.gaussian", "also=also, gaussian=True", TEST_ROLLBACK_GUARD),
    of("P4", "client/eigenveil_client/site/state/rollback.py", "ledger.gaussian", "True",
       TEST_ROLLBACK_GUARD),
    *each("P5", "accounting/formatting.py", DIGITS,
          ("_text(_rounded(value, digits, ROUND_CEILING))", "_text(_rounded(value, digits, ROUND_FLOOR))"),
          ("digits, ROUND_FLOOR", "digits, ROUND_CEILING"), ("repr(float(value))", "float(value)"),
          ("math.ceil(_parts(part, whole, places))", "round(_parts(part, whole, places))")),
    of("P5", "client/eigenveil_client/local/tables.py", "shown_up(row.epsilon)", 'f"{row.epsilon:.3g}"',
       TREE),
    of("P4", "accounting/budget.py", "records**2 *", "records *", CONVERSION),
    of("P5", "accounting/budget.py", "shown_down(one * BELOW, digits)", "shown_up(one, digits)", CONVERSION),
    *each("P4", "accounting/budget.py", f"{CONVERSION}"
          "::test_the_probability_of_a_mixed_budget_holds_the_deltas_that_mechanisms_have_of_their_own",
          ("mechanism_delta,", "0 * mechanism_delta,"), ("mechanism_delta * chain", "mechanism_delta")),
    of("P5", "accounting/formatting.py", "FRACTION_DIGITS, rounding=rounding", "3",
       f"{DIGITS}::test_a_fraction_is_rounded_to_the_requested_side"),
    of("P4", STORE, "ledger.read(lambda ledger: self._of_year(yearly, ledger))",
       "_of_year(yearly, self.ledger.ledger)",
       "tests/client/site/state/test_store.py::test_yearly_use_is_read_under_the_ledger_s_lock"),
    of("P33", "server/eigenveil_server/studies/study_run.py", "self._stop_if_cancelled()  #", "pass  #",
       f"{TEST_NEXT_QUERY}::test_no_attempt_at_the_next_round_is_charged_once_a_study_is_cancelled"),
    of("P27", "common/eigenveil_common/storage/database.py",
       "change.execute(statements)\n                self.set_version(change, reached)",
       "self.set_version(change, reached)\n        with self.transaction() as change:"
       "\n            change.execute(statements)",
       f"{MIGRATIONS}::test_an_upgrade_that_is_killed_at_any_statement_is_whole_or_not_made"),
    of("P27", "common/eigenveil_common/storage/database.py", "            check(change)\n", "",
       f"{MIGRATIONS}::test_an_upgrade_that_fails_changes_nothing"),
    of("P4", "dictionary/site_rules.py", "plan.gaussian or self.noise == NoiseRule.ANY.value", "True",
       "tests/client/site/test_config.py"
       "::test_a_budget_is_counted_in_mu_only_where_no_other_noise_is_ever_admitted"),
    of("P5", "study/algorithm.py", 'adaptive-cov", AlgorithmProperties(',
       'adaptive-cov", AlgorithmProperties(gaussian=True, ',
       f"{TEST_COSTS}::test_a_guarantee_claims_what_its_costs_add_up_to"),
    of("P5", "study/composition.py", "GAUSSIAN if algorithm.properties.gaussian else Composition.ZCDP",
       "GAUSSIAN", f"{TEST_COSTS}::test_the_affordable_cost_satisfies_epsilon_and_delta"),
    of("P5", "accounting/gaussian.py", "2 * arb(delta)", "4 * arb(delta)",
       "tests/core/accounting/test_gaussian.py"),
    of("P5", "accounting/budget.py", "micro_rho=zcdp", "micro_rho=gaussian",
       "tests/client/site/test_config.py"
       "::test_a_budget_is_counted_in_mu_only_where_no_other_noise_is_ever_admitted"),
    of("P5", "reporting/explain.py", "**2 * cost", " * cost",
       f"{TEST_COSTS}::test_the_reading_under_replacement_is_that_of_two_changes"),
    of("P6", "barrier.py",
       "        journal.charge(round_query)  # the failure may reveal the draw or the sum\n", "",
       "tests/core/test_barrier.py::test_noise_of_another_type_or_length_reaches_no_release"),
    of("P6", "barrier.py", "    journal.seal(round_query, sealed)\n", "",
       "tests/core/test_barrier.py::test_one_charged_answer_is_published_for_any_sequence_of_crashes"),
    of("P6", "barrier.py", "not None:", "not None and stored.round < 0:",
       "tests/core/test_barrier.py::test_a_different_sum_after_the_seal_changes_nothing"),
    of("P6", SEALING, ", self._prepared = self._prepared, None", " = self._prepared",
       "tests/server/studies/test_study_run.py"
       "::test_prepared_noise_is_handed_out_once_and_only_as_specified"),
    of("P6", SEALING, "        wait_for_tick()\n", "",
       "tests/server/studies/test_rounds.py::test_nothing_is_seen_of_a_draw_before_its_tick"),
    of("P27", SEALING, ")\n        self._book(round_query, write",
       ")\n        with self.repository.store.writer.transaction() as change:"
       "\n            write(change, self.repository.ledger.ledger_position)"
       "\n        self.charge(round_query", ONE_SYNC),
    of("P27", SEALING, "wait_for_tick()\n        self._book(round_query, write)",
       "__import__('threading').Timer(0.3, self._book, (round_query, write)).start()", f"{TEST_NEXT_QUERY}"
       "::test_what_the_algorithm_is_fed_is_charged_and_stored_before_its_next_query[central]"),
    of("P27", SEALING, "charge_round(round_query, also)", "write_alongside(also)", f"{TEST_NEXT_QUERY}"
       "::test_what_the_algorithm_is_fed_is_charged_and_stored_before_its_next_query[central]"),
    of("P27", DRIVERS, "study_writes.open_round(change, opened.round_query, query.SerializeToString(), at)",
       "pass", ONE_SYNC),
    of("P27", DRIVERS, "ledger.write_alongside(write)",
       "__import__('threading').Timer(0.3, ledger.write_alongside, (write,)).start()", ONE_SYNC),
    of("P27", DRIVERS, "before not in (None, round_query.digest)", "False",
       f"{TEST_NEXT_QUERY}::test_a_round_is_never_opened_in_other_words"),
    of("P27", "server/eigenveil_server/studies/contributions.py",
       "complete and await opened.wait_until_settled(RELEASE_WAIT_SECONDS)", "False", ONE_SYNC),
    of("P27", "server/eigenveil_server/studies/contributions.py",
       "None if opened.frozen else run.event(opened)",
       '(event := run.event(opened)).MergeFrom(pb.StudyEvent(round_state="open")) or event',
       "tests/server/studies/test_rounds.py"
       "::test_the_set_of_a_closed_round_is_not_revealed_before_its_release"),
    of("P27", "server/eigenveil_server/studies/study_run.py",
       "release = await run(self._release, opened, present, journal, noise)",
       "early = type('Early', (), {'sealed': journal.sealed, 'charge': journal.charge, 'seal':"
       "\n                lambda _, round_query, one: (session.feed(one), journal.seal(round_query,"
       " one))})()\n            release = await run(self._release, opened, present, early, noise)"
       "\n            session.feed = lambda one: session.__dict__.pop('feed')",
       "tests/server/recovery/test_lost_draws.py"
       "::test_a_step_that_ends_the_process_by_what_it_was_fed_discards_no_draw"),
    of("P27", DRIVERS,
       "(round_query.plan_digest, round_query.round) in self.repository.ledger.ledger.charged", "False",
       "tests/server/recovery/test_lost_draws.py::test_a_draw_that_failed_and_was_paid_is_not_drawn_again"),
    of("P27", SEALING, "wait([asyncio.wrap_future(self._prepared[1])])", "wrap_future(self._prepared[1])",
       f"{TEST_ONE_SYNC}"
       "::test_a_failed_draw_is_charged_before_it_is_reported_and_answers_stay"),
    of("P27", "client/eigenveil_client/site/state/outgoing.py",
       "checkpoints.save(checkpoint, change)\n        self.", "", "tests/client/site/state/test_store.py"
       "::test_an_answered_round_is_one_transaction_and_the_checkpoint_is_in_it"),
    of("P7", "algorithms/recommended/gauss_cov.py", "import annotations",
       "import annotations\n\nfrom eigenveil.site.site import Site as Site", "lint-imports"),
    of("P7", "session.py", "\n            round_query.round,\n            round_query.digest,"
       "\n            round_query.cost,\n        ", "round_query.round, round_query.digest, release.cost",
       "tests/core/test_session.py::test_a_release_that_answers_something_else_is_refused"),
    *each("P8", "accounting/ledger.py", f"{TEST_LEDGER}::test_a_refused_request_changes_nothing",
          ("self._check_query(study, round, query)\n        if (", "if ("),
          ("budget = budget", "budget = ledger.committed() + budget")),
    of("P9", "protocol/query.py", "None and batch.index > 0", "None", "tests/core/mechanisms/test_drawn.py"
       "::test_every_query_is_charged_unless_it_is_a_later_batch_of_a_pass"),
    *each("P9", "protocol/query_limits.py", "tests/core/protocol/test_budget.py",
          ("not cost.fits(first)", "first == NO_COST != cost"), ("cost if same else NO_COST", "cost")),
    of("P9", "site/batches.py", "np.repeat", "0 * np.repeat",
       "tests/core/queries/test_single_pass.py::test_one_record_more_changes_one_part_wherever_it_stands"),
)  # fmt: skip
