from __future__ import annotations

import pytest

from motet.swarm.engines.acl import access_rules, own_keys


def allowed(rules, name):
    """(message, key, flow) that the rules allow to a certificate of this name."""
    subjects = {subject["id"] for subject in rules["subjects"] if name in subject["cert_common_names"]}
    chosen = {rule for policy in rules["policies"] if subjects & set(policy["subjects"]) for rule in policy["rules"]}
    return {
        (message, key, flow)
        for rule in rules["rules"]
        if rule["id"] in chosen and rule["permission"] == "allow"
        for message in rule["messages"]
        for key in rule["key_exprs"]
        for flow in rule["flows"]
    }


class TestAccessRules:
    def test_what_is_not_allowed_is_denied(self):
        rules = access_rules(["ann"])
        assert rules["enabled"] is True
        assert rules["default_permission"] == "deny"

    def test_a_member_speaks_under_its_own_name_only(self):
        rules = access_rules(["ann", "bob"], run="ab12")
        spoken = {key for message, key, flow in allowed(rules, "ann") if message == "put" and flow == "ingress"}
        assert spoken == set(own_keys("ab12", "ann"))
        assert not any("bob" in key for key in spoken)

    def test_a_member_hears_everything_of_the_run(self):
        rules = access_rules(["ann", "bob"], run="ab12")
        assert ("put", "motet/ab12/**", "egress") in allowed(rules, "bob")
        assert ("declare_subscriber", "motet/ab12/**", "ingress") in allowed(rules, "bob")

    def test_a_stranger_may_nothing(self):
        assert allowed(access_rules(["ann"]), "eve") == set()

    def test_without_a_run_any(self):
        assert ("put", "motet/*/beat/ann", "ingress") in allowed(access_rules(["ann"]), "ann")

    def test_a_relay_passes_on(self):
        rules = access_rules(["ann"], run="ab12", relays=["hub"])
        assert ("put", "motet/ab12/**", "ingress") in allowed(rules, "hub")
        assert ("put", "motet/ab12/**", "ingress") not in allowed(rules, "ann")

    def test_ids_and_subjects_are_unique_and_known(self):
        rules = access_rules(["ann", "bob", "ann"], relays=["hub"])
        for section in ("rules", "subjects"):
            ids = [entry["id"] for entry in rules[section]]
            assert len(ids) == len(set(ids))
        for policy in rules["policies"]:
            assert set(policy["rules"]) <= {rule["id"] for rule in rules["rules"]}
            assert set(policy["subjects"]) <= {subject["id"] for subject in rules["subjects"]}

    @pytest.mark.parametrize(("members", "relays"), [([], []), (["ann"], ["ann"])])
    def test_refuses_lists_that_make_no_rules(self, members, relays):
        with pytest.raises(ValueError, match=r"at least one member|not both"):
            access_rules(members, relays=relays)
