"""One seed gives many streams that leave each other alone."""

from __future__ import annotations

import re

from strandline.testing.streams import Options, SimulatedRandom, shrink, stream


def test_a_stream_depends_on_its_seed_and_its_name_only():
    firsts = {(seed, name): stream(seed, name).random() for seed in range(5) for name in "abc"}
    assert len(set(firsts.values())) == 15
    assert stream(3, "b").random() == firsts[3, "b"]


def test_streams_are_the_same_in_every_release():
    assert stream(1, "faults").getrandbits(32) == 717630002


def test_simulated_tokens_look_like_real_ones():
    random = SimulatedRandom(stream(1, "a"))
    tokens = {random.token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in tokens)
    assert 4 <= random.uniform(4, 5) <= 5


FAULTS = {"crash": (0.01, 0.1), "lost replies": (0.05,), "latency": (1, 30_000)}


def test_options_turn_a_random_part_of_the_faults_off():
    drawn = [Options.from_seed(stream(seed, "options"), FAULTS) for seed in range(200)]
    counts = {sum(options.on(name) for name in FAULTS) for options in drawn}
    assert counts == {0, 1, 2, 3}
    for name, values in FAULTS.items():
        assert {options[name] for options in drawn} == {0, *values}


def test_a_new_option_leaves_the_others_as_they_were():
    for seed in range(50):
        few = Options.from_seed(stream(seed, "options"), FAULTS)
        more = Options.from_seed(stream(seed, "options"), {"new": (1,), **FAULTS})
        assert all(more[name] == few[name] for name in FAULTS)


def test_names_alone_are_switches():
    drawn = [Options.from_seed(stream(seed, "options"), ["a", "b"]) for seed in range(50)]
    assert {(options["a"], options["b"]) for options in drawn} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_options_print_as_what_makes_them_again():
    assert str(Options({"crash": 1, "latency": 0})) == "Options({'crash': 1, 'latency': 0})"


def test_shrinking_keeps_only_what_the_failure_needs():
    tried: list[Options] = []

    def fails(options: Options) -> bool:
        tried.append(options)
        return options.on("a") and options.on("c")

    assert shrink(fails, Options(dict.fromkeys("abcd", 1))).values == {
        "a": 1,
        "b": 0,
        "c": 1,
        "d": 0,
    }
    assert len(tried) == 4
