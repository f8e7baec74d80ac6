"""Our `dataclass` is promised to do what that of the standard library does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import threading
from pathlib import Path
from typing import ClassVar

import pytest

import rmqcli
from rmqcli.dataclass import dataclass
from tests.kit.rows import each_row


def declare(dataclass):
    """Return classes of all kinds that this package has, made by `dataclass`."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A value."""

        x: int
        y: int = 2

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options with keywords, of which some are not compared or shown."""

        name: str
        words: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)
        note: str = dataclasses.field(default="n", compare=False)
        table: dict[int, str] = dataclasses.field(default_factory=dict, hash=False)

    @dataclass(slots=True)
    class Mixed:
        """A changeable one, with fields that are no arguments."""

        first: int
        limit: ClassVar[int] = 3
        _: dataclasses.KW_ONLY
        second: int | None = None
        counted: int = dataclasses.field(default=0, init=False)
        kept: list[int] = dataclasses.field(default_factory=list, init=False)
        later: int = dataclasses.field(init=False)

        def __post_init__(self):
            self.later = self.first + 1

    @dataclass
    class Plain:
        """Without slots."""

        value: object = None

    @dataclass(slots=True, eq=False)
    class Identical:
        """Compared by identity."""

        value: int = 0

    @dataclass(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        value: int

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return isinstance(other, Own)

        def __hash__(self):
            return 7

    @dataclass(frozen=True, slots=True)
    class Narrow(Point):
        """A subclass, which replaces a default."""

        y: int = 5
        z: str = "z"

    @dataclass(frozen=True, slots=True)
    class Checked:
        """Checks and changes what it is made of."""

        value: int

        def __post_init__(self):
            if self.value < 0:
                raise ValueError(self.value)
            object.__setattr__(self, "value", self.value * 2)

    @dataclass(frozen=True, slots=True, init=False)
    class Made:
        """With an `__init__` of its own."""

        value: int

        def __init__(self, text):
            object.__setattr__(self, "value", int(text))

    @dataclass(frozen=True, slots=True)
    class Empty:
        """Without fields."""

    return {
        each.__name__: each
        for each in (
            *(Point, Options, Mixed, Plain, Identical),
            *(Own, Narrow, Checked, Made, Empty),
        )
    }


OURS, THEIRS = declare(dataclass), declare(dataclasses.dataclass)
EXAMPLES = [
    ("Point", (1,), {}),
    ("Point", (1,), {"y": 3}),
    ("Options", (), {"name": "a"}),
    ("Options", (), {"name": "a", "words": ["b"], "note": "m", "secret": "t"}),
    ("Mixed", (1,), {"second": 2}),
    ("Plain", (), {}),
    ("Identical", (4,), {}),
    ("Own", (1,), {}),
    ("Narrow", (1,), {}),
    ("Narrow", (1, 2), {"z": "y"}),
    ("Checked", (3,), {}),
    ("Made", ("8",), {}),
    ("Empty", (), {}),
]


@pytest.mark.parametrize("name", OURS)
def test_a_class_looks_like_one_of_the_standard_library(name):
    ours, theirs = OURS[name], THEIRS[name]
    shown = [re.sub("<factory>", "", str(inspect.signature(e))) for e in (ours, theirs)]
    assert shown[0] == shown[1]
    assert ours.__match_args__ == theirs.__match_args__
    fields = [[e.name for e in dataclasses.fields(c)] for c in (ours, theirs)]
    assert fields[0] == fields[1]
    assert (ours.__doc__, ours.__hash__ is None) == (
        theirs.__doc__,
        theirs.__hash__ is None,
    )
    assert ours.__init__.__qualname__ == theirs.__init__.__qualname__
    assert ours.__init__.__annotations__ == theirs.__init__.__annotations__


@each_row(("name", "values", "named"), EXAMPLES)
def test_an_object_behaves_like_one_of_the_standard_library(name, values, named):
    made = [each[name](*values, **named) for each in (OURS, THEIRS)]
    again = [each[name](*values, **named) for each in (OURS, THEIRS)]
    results = []
    for one, other in zip(made, again, strict=True):
        fields = [f for f in dataclasses.fields(one) if f.init]
        results.append(
            [
                "<identity>" if name == "Identical" else repr(one),
                dataclasses.asdict(one),
                one == other,
                one == "another type",
                type(one).__hash__ is not None
                and name not in ("Identical", "Options")
                and hash(one),
                dataclasses.asdict(copy.copy(one)),
                dataclasses.asdict(copy.deepcopy(one)),
                name == "Made"
                or dataclasses.asdict(
                    dataclasses.replace(
                        one, **{f.name: getattr(other, f.name) for f in fields}
                    )
                ),
            ]
        )
    assert results[0] == results[1]


def test_what_is_frozen_cannot_be_changed():
    point = OURS["Point"](1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert point.x == 1


def test_what_is_not_frozen_can_be_changed():
    mixed = OURS["Mixed"](1)
    mixed.first = 2
    assert (mixed.first, mixed.later) == (2, 2)


def test_fields_that_are_not_compared_count_neither_for_equality_nor_for_the_hash():
    options = OURS["Options"]
    key = [
        options(name="a", words=(), table={1: n}, note=n)  # a tuple can be hashed
        for n in ("x", "y")
    ]
    assert key[0] != key[1]
    assert hash(key[0]) == hash(key[1])
    assert options(name="a", note="x") == options(name="a", note="y")
    assert options(name="a") != options(name="b")


@pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        OURS["Point"](*arguments)


def test_a_check_of_a_value_refuses_it():
    with pytest.raises(ValueError, match="-1"):
        OURS["Checked"](-1)


def test_an_object_that_contains_itself_is_shown():
    value = OURS["Plain"]()
    value.value = value
    assert repr(value) == "declare.<locals>.Plain(value=...)"


@dataclass(frozen=True, slots=True)
class Pickled:
    value: int
    _kept: str = dataclasses.field(default="k", repr=False)


def test_a_frozen_object_can_be_pickled():
    assert pickle.loads(pickle.dumps(Pickled(3, "m"))) == Pickled(3, "m")


def test_the_init_is_compiled_when_it_is_first_used():
    made = declare(dataclass)["Point"]
    assert not inspect.isfunction(vars(made)["__init__"])
    assert made(1).y == 2
    assert inspect.isfunction(vars(made)["__init__"])


def test_the_fields_are_examined_when_they_are_first_looked_up():
    made = declare(dataclass)["Narrow"]
    assert not isinstance(vars(made)["__dataclass_fields__"], dict)
    assert [each.name for each in dataclasses.fields(made)] == ["x", "y", "z"]
    assert isinstance(vars(made)["__dataclass_fields__"], dict)


def test_a_variable_of_the_class_is_no_field_and_no_slot():
    mixed = declare(dataclass)["Mixed"]
    assert (mixed.limit, mixed(1).limit) == (3, 3)
    assert "limit" not in mixed.__slots__
    assert "limit" not in repr(mixed(1))


def test_objects_are_matched_by_the_order_of_their_fields():
    kind = declare(dataclass)["Narrow"]
    match kind(1, 2, "a"):
        case kind(x, y, z):
            assert (x, y, z) == (1, 2, "a")


def test_a_default_that_can_change_is_refused():
    for made in (dataclass, dataclasses.dataclass):
        with pytest.raises(ValueError, match="words"):

            @made(slots=True)
            class _Shared:
                words: list[str] = []  # noqa: RUF012


def test_threads_may_make_the_first_objects_at_the_same_time():
    made = declare(dataclass)["Narrow"]
    gate, found = threading.Barrier(8), []

    def make():
        gate.wait()
        found.append(made(1).z)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == ["z"] * 8


def test_every_module_takes_this_dataclass():
    root = Path(rmqcli.__file__).parent
    theirs = re.compile(
        r"from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass"
    )
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if theirs.search(path.read_text())
    }
    # The second one has MessageQueue, which is compared and hashed in bulk.
    assert found == {"dataclass.py", "model.py"}


def test_a_class_of_a_program_may_extend_a_frozen_one():
    @dataclass(frozen=True, slots=True)
    class Base:
        x: int

    @dataclasses.dataclass(frozen=True, slots=True)
    class OfTheProgram(Base):
        y: int = 2

    assert OfTheProgram(1) == OfTheProgram(1, 2)
    assert repr(OfTheProgram(1)).endswith("OfTheProgram(x=1, y=2)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        OfTheProgram(1).y = 3  # type: ignore[misc]  # it is refused
    with pytest.raises(TypeError, match="non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Changeable", (Base,), {}))
