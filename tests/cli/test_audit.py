from support.command import axiograd

QUICK = ("--steps", "64", "--samples", "4", "--networks", "1")


def test_named_methods_are_1_if_an_axiom_fails():
    done = axiograd("audit", "x-gradient", "input-x-gradient", *QUICK, "--json")
    assert done.code == 1
    by = {row["method"]: row for row in done.json["methods"]}
    assert by["X-Gradient"]["passed"]
    failed = {axiom["axiom"] for axiom in by["Input×Gradient"]["axioms"] if not axiom["passed"]}
    assert failed == {"Sensitivity (a)", "Completeness", "Nonnegative homogeneity"}
    assert done.json["not_as_in_the_paper"] == []
    assert axiograd("audit", "x-gradient", *QUICK).code == 0


def test_the_table_for_people():
    done = axiograd("audit", "gradient", "x-gradient", *QUICK, "--details")
    assert "✗ (✗)" in done.out
    assert "Every cell that the paper fills is as in the paper." in done.out
    assert "f(x) = 1 - ReLU(1 - x)" in done.out


def test_a_model_is_searched_for_counterexamples(mine):
    done = axiograd("audit", "x-gradient", f"{mine}:table", "--json")
    assert (done.code, done.json["methods"][0]["passed"]) == (0, True)
    done = axiograd("audit", "input-x-gradient", f"{mine}:normalised", "--json")
    assert done.code == 1
    done = axiograd("audit", "x-gradient", f"{mine}:normalised")
    assert done.code == 1
    assert "not certified" in done.err
