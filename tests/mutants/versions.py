"""Faults in what versions agree on, in upgrades and in keys that are replaced."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SERVER = "server/eigenveil_server"
CAPABILITIES = "tests/core/protocol/test_capabilities.py"
PLANS = "tests/core/protocol/test_plan.py"
RELEASE_KEYS = "tests/core/protocol/test_release_keys.py"
SHARED = f"{CAPABILITIES}::test_the_common_versions_are_the_highest_that_all_have_who_have_any"
NAMED = f"{CAPABILITIES}::test_a_site_that_cannot_run_a_plan_is_named_before_anything_is_stored"
REQUIRED = f"{PLANS}::test_an_unknown_key_that_is_required_is_refused"
KEPT = f"{PLANS}::test_an_unknown_key_that_is_not_required_is_kept_in_the_digest_and_changes_nothing_else"
GOLDEN = "tests/compat/test_golden.py"
NAME = f"{GOLDEN}::test_every_name_of_an_earlier_version_is_still_there"
SAME = f"{GOLDEN}::test_releases_of_every_algorithm_verify_and_are_the_same_bytes_again[1.0]"
SCALING = "tests/core/study/test_scaling.py"
SCALED = f"{SCALING}::test_python_toml_and_a_draft_have_one_default_and_a_text_on_the_wire_keeps_its_meaning"
DEFAULT = f"{SCALING}::test_a_study_that_states_none_is_standard_exactly_where_units_differ_and_it_can_be"
WARNED = f"{SCALING}::test_a_study_by_wide_bounds_in_several_units_warns_before_it_is_paid_for"
QUEUE = "tests/integration/test_release_key.py::test_a_new_release_key_in_a_queue_of_studies"
MOVED = "tests/integration/test_moved_coordinator.py::test_a_coordinator_moves_in_the_middle_of_a_queue"

OF_VERSIONS: tuple[Mutant, ...] = (
    *each("R33", "protocol/capabilities.py", SHARED, ("shared &= has", "shared |= has"),
          ("min([own.plan_max", "max([own.plan_max")),
    *each("R33", "protocol/capabilities.py", NAMED,
          ("if not self.plan_min <= plan.version <= self.plan_max", "if False"),
          ("plan.revision in self.revisions.get(plan.algorithm.value, ())", "True"),
          ("left < federation.least or bool(old.keys() & set(federation.required))", "False")),
    of("R35", "signatures.py", "    if required != []:", "    if False:", "tests/vectors/test_vectors.py"),
    of("R35", "protocol/plan.py", "if name != REQUIRED_PRIOR]:", "if False]:", REQUIRED),
    of("R35", "protocol/plan.py", "canonical(_merged(plan_to_dict(self), self.unknown))",
       "canonical(plan_to_dict(self))", KEPT),
    of("R34", "protocol/authorities.py", "has_signed(before.key, after.succession, named)", "True",
       f"{RELEASE_KEYS}::test_keys_out_of_order_or_without_a_valid_succession_are_refused"),
    of("R34", "protocol/authorities.py", "for one in self.release_keys if one.use is not KeyUse.EARLIER)",
       "for one in self.release_keys)",
       f"{RELEASE_KEYS}::test_a_key_is_announced_then_signs_and_the_old_one_verifies_for_ever"),
    # ---- a text without a scaling: by bounds where it was sent, by units where it is drafted
    *each("R36", "study/toml.py", SCALED, ("{SCALING: Scaling.BOUNDS.value} | _table", "_table"),
          ("text=toml_text(given))\n\n\ndef is_whole", "text=self.text)\n\n\ndef is_whole")),
    *each("R36", "study/scaling.py", DEFAULT, ("len(_units(columns)) > 1", "True"),
          ("return ONE[1] if unit in ONE else unit", "return unit")),
    of("R36", "study/study.py", "found += width_warnings(", "(lambda *_: ())(", WARNED),
    # ---- what is frozen
    of("R35", "protocol/plan.py", '"micro_rho": plan.micro_rho', '"cost": plan.micro_rho', SAME),
    of("R35", "numerics/encoding.py", 'eigenveil/{domain}/v1', "eigenveil/{domain}/v2", SAME),
    of("R35", "numerics/encoding.py", "rfc8785.dumps(value)", "rfc8785.dumps(value)[::-1]", SAME),
    of("R35", "accounting/checkpoint.py", '"micro_rho", "atto_delta", "gaussian", "trail")',
       '"cost", "atto_delta", "gaussian", "trail")', f"{NAME}[keys-1.0]"),
    of("R35", f"{SERVER}/metrics.py", '"eigenveil_refused_calls"', '"eigenveil_refusals"',
       f"{NAME}[metrics-1.0]"),
    of("R35", "client/eigenveil_client/site/commands/state_commands.py", '"--again"', '"--repeat"',
       f"{NAME}[commands-1.0]"),
    of("R19", "client/eigenveil_client/connection/doctor.py", "(*known.addresses, joined)", "(joined,)",
       MOVED),
    of("R34", f"{SERVER}/pki/release_keys.py", "    _resign_stored(store, current, key)\n", "", QUEUE),
)  # fmt: skip
