"""How random networks are drawn: by hypothesis in the tests, by a seeded generator in the long run."""

from hypothesis import strategies as st

from support.certificates.programs import FREQUENT, IN_PLACE, RARE

STEPS = 5
_RARE = tuple(sorted(RARE))


def networks(count, *, in_place=False):
    """Hypothesis: a list of networks; later operands are the likelier ones."""
    names = st.sampled_from(FREQUENT) | st.sampled_from(FREQUENT) | st.sampled_from(FREQUENT + _RARE)
    if in_place:
        names = names | st.sampled_from(IN_PLACE)
    operand = st.sampled_from((0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6))
    step = st.tuples(names, operand, operand, operand)
    return st.lists(st.lists(step, min_size=1, max_size=STEPS).map(tuple), min_size=count, max_size=count)


def draw(random, *, in_place=False):
    """One network from a `random.Random`."""
    return tuple(_step(random, in_place=in_place) for _ in range(random.randint(1, STEPS)))


def _step(random, *, in_place):
    names = IN_PLACE if in_place and random.random() < 0.3 else _RARE if random.random() < 0.1 else FREQUENT
    return (random.choice(names), *(min(int(random.expovariate(0.6)), 6) for _ in range(3)))
