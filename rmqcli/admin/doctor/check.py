"""How checks are declared: functions of the facts, with a name and a title."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.admin.doctor.facts import Facts
from rmqcli.admin.doctor.model import about
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from rmqcli.admin.doctor.model import Findings

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. `title` says what it looks for; `needs` are parts of the facts.

    `judge` is pure: it returns findings, and none if all is well. `judges_silence` says
    that it reports itself what does not answer, or asks no broker.
    `works_without_master` says that slaves can be asked for what it needs, or that it
    is about each process.
    """

    name: str
    title: str
    needs: frozenset[str]
    judge: Callable[[Facts], Findings]
    judges_silence: bool = False
    works_without_master: bool = False


def check(
    name: str, title: str, *needs: str, **flags: bool
) -> Callable[[Callable[[Facts], Findings]], Check]:
    """Make a check of the function that follows, which judges the facts.

    `flags` are its `judges_silence` and `works_without_master`.
    """

    def make(judge: Callable[[Facts], Findings]) -> Check:
        wanted = frozenset(needs)
        return Check(name=name, title=title, needs=wanted, judge=judge, **flags)

    return make


@dataclass(frozen=True, slots=True)
class CheckEach(Generic[T]):
    """Makes checks as `check` does, of functions that judge one thing at a time.

    Findings without a subject are about that thing.
    """

    things: Callable[[Facts], Iterable[T]]
    name_of: Callable[[T], str]
    works_without_master: bool = False

    def __call__(
        self, name: str, title: str, *needs: str
    ) -> Callable[[Callable[[Facts, T], Findings]], Check]:
        """Make a check of the function that follows."""

        def make(judge: Callable[[Facts, T], Findings]) -> Check:
            def judge_all(facts: Facts) -> Findings:
                for thing in self.things(facts):
                    yield from about(self.name_of(thing), judge(facts, thing))

            alone = self.works_without_master
            return check(name, title, *needs, works_without_master=alone)(judge_all)

        return make


_process_name = attrgetter("row.process_name")
#: Make checks of each broker that answered, and of each master.
check_brokers = CheckEach(Facts.answering, _process_name, works_without_master=True)
check_masters = CheckEach(Facts.masters, _process_name)


def checks_of(module: ModuleType) -> tuple[Check, ...]:
    """Return the checks of a module, in their order."""
    return tuple(each for each in vars(module).values() if isinstance(each, Check))
