"""The screen of `rmq top`, in Textual: keys, the stack of views, and their feeds.

The thread of the screen never waits for a server: a feed reads the view that is shown
(`feed`), and what it posts is taken here. One widget shows the lines that a
`FramePainter` draws; Textual does the terminal, keys, the mouse and the line in which
the user types.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from rmqcli.cli.top.brokers import BrokersView, DoctorView
from rmqcli.cli.top.cluster import NamedCluster
from rmqcli.cli.top.clusters import ClustersView
from rmqcli.cli.top.feed import Feed
from rmqcli.cli.top.frame import FrameContent, FramePainter
from rmqcli.cli.top.groups import GroupsView, GroupView
from rmqcli.cli.top.reset import ResetView
from rmqcli.cli.top.topics import TopicsView
from rmqcli.cli.top.view import Question, View, clock_time
from rmqcli.cli.ui.output import Column
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import ExitCode, RmqError, TransportError
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from rmqcli.cli.ui.output import Row

_TICK_S: Final = 0.5
_WHEEL_ROWS: Final = 3

#: Keys that mean the same while a question is open.
_BOUND: Final = {
    "ctrl+c": "interrupt",
    "ctrl+q": "leave",
    "ctrl+z": "suspend_process",
    "tab": "part",
}
#: The keys of every view, for the help.
_HELP: Final = (
    ("1 2 3 4 5", "groups, topics, brokers, doctor, clusters"),
    ("up down k j", "choose a row; also page up and down, home and end"),
    ("enter", "open what the row is about: a group, a queue's messages, a cluster"),
    ("esc", "back"),
    ("tab", "the next table of the same subject"),
    ("/", "show only rows with a text; an empty one shows all"),
    ("f n N", "find a text; the next row with it; the one before"),
    ("s S", "sort by the next column that can be sorted by; the other way round"),
    ("t", "tail: the messages of a topic as they arrive"),
    ("d", "dead letters of a group"),
    ("o", "the message that a dead letter was"),
    ("r", "reset a group's offsets, with --allow-changes"),
    ("space", "read now"),
    ("q", "quit"),
)


class HelpView(View):
    """The keys."""

    interval_ms = None
    command = ("help", "watching")
    columns = (Column("key"), Column("meaning", title="WHAT IT DOES"))

    def __init__(self) -> None:
        super().__init__("help")

    def rows(self) -> Sequence[Row]:
        return [{"key": key, "meaning": meaning} for key, meaning in _HELP]

    def key_of(self, row: Row) -> Any:
        return row["key"]

    def read(self, client: Any) -> object:
        return None


class Answered(Message):
    """A feed has read its view, or failed to."""

    def __init__(self, feed: Feed, answer: object) -> None:
        super().__init__()
        self.feed = feed
        self.answer = answer


class _Shown:
    """A view with what the user has chosen in it, and what is known of its reading."""

    def __init__(self, view: View, *, is_ascii: bool) -> None:
        self.view = view
        self.painter = FramePainter(is_ascii=is_ascii)
        self.cursor = 0
        #: the key of the chosen row; None while the first one is chosen
        self.key: Hashable = None
        self.filter = ""
        self.sort = 0
        self.is_reversed = False
        self.feed: Feed | None = None
        self.error: RmqError | None = None
        #: epoch ms of the last answer; None before the first one
        self.answered_ms: int | None = None
        self.rows: Sequence[Row] = ()

    @property
    def sort_name(self) -> str:
        names = list(self.view.sorts)
        return names[self.sort % len(names)] if names else ""

    def arrange(self, *, is_stale: bool) -> None:
        """Filter and sort the rows as they were read last, and find the chosen one."""
        view = self.view
        rows = view.rows()
        if is_stale and view.stale:
            rows = [{**row, **view.stale} for row in rows]
        if self.filter:
            rows = [row for row in rows if self.has(row, self.filter)]
        if view.sorts and not (view.parts and view.part):
            order = view.sorts[self.sort_name]
            rows = sorted(rows, key=order, reverse=self.is_reversed)
        self.rows = rows
        if self.key is not None:
            for index, row in enumerate(rows):
                if view.key_of(row) == self.key:
                    self.cursor = index
                    break
        else:
            self.cursor = 0
        self.cursor = max(0, min(self.cursor, len(rows) - 1))

    def has(self, row: Row, text: str) -> bool:
        """Whether a cell of a row contains a text, in any case."""
        wanted = text.lower()
        return any(
            wanted in column.text(row).lower()
            for column in self.view.columns
            if column.title is not None
        )

    def choose(self, index: int) -> None:
        """Choose a row. The first one stays chosen when other rows come before it."""
        self.cursor = max(0, min(index, len(self.rows) - 1))
        self.key = self.view.key_of(self.rows[self.cursor]) if self.cursor else None

    @property
    def row(self) -> Row | None:
        return self.rows[self.cursor] if self.rows else None


class Board(Widget, can_focus=True):
    """Shows the lines of a frame, as they are."""

    DEFAULT_CSS = "Board { height: 1fr; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.strips: list[Strip] = []

    def render_line(self, y: int) -> Strip:
        if y < len(self.strips):
            return self.strips[y]
        return Strip.blank(self.size.width)


class TopApp(App[int]):
    """The screen, of `cluster` at first. `run` returns the exit code.

    `others` lists clusters that the user can change to, and may raise RmqError. `done`
    lists what was changed, one line each.
    """

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Input, Input:focus {
        dock: bottom; height: 1; border: none; padding: 0;
        background: ansi_default; color: ansi_default;
    }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding(key, action, priority=True) for key, action in _BOUND.items()
    ]

    def __init__(
        self,
        cluster: NamedCluster,
        *,
        others: Callable[[], Sequence[NamedCluster]] = tuple,
        interval_ms: int = 2_000,
        group: str | None = None,
        is_ascii: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)
        self._cluster = cluster
        self._interval_ms = interval_ms
        self._is_ascii = is_ascii
        self._clusters = ClustersView(cluster, others)
        self._roots = (*self._views_of_cluster(), self._shown(self._clusters))
        self._stack = [self._roots[0]]
        if group is not None:
            self._stack.append(self._shown(GroupView(group)))
        self._answer: Callable[[str], View | Question | None] | None = None
        self._question = ""
        self._found = ""
        self._feeds: list[Feed] = []
        self.done: list[str] = []

    def compose(self) -> ComposeResult:
        yield Board()
        line = Input()
        line.display = False
        yield line

    def on_mount(self) -> None:
        self._board = self.query_one(Board)
        self._input = self.query_one(Input)
        self._board.focus()
        self.set_interval(_TICK_S, self._draw)
        self._draw()
        self._start(self._stack[-1])

    def on_resize(self, event: events.Resize) -> None:
        # The widget gets its new size after this event.
        self.call_after_refresh(self._draw)

    def on_unmount(self) -> None:
        for feed in self._feeds:
            feed.close()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the threads that read; return whether they have ended."""
        return all(feed.join(timeout_ms) for feed in self._feeds)

    # --- views and their feeds ---

    def _views_of_cluster(self) -> Sequence[_Shown]:
        views = (GroupsView(), TopicsView(), BrokersView(), DoctorView())
        return [self._shown(view) for view in views]

    def _shown(self, view: View) -> _Shown:
        if view.interval_ms == View.interval_ms:
            view.interval_ms = self._interval_ms
        view.flags = self._cluster.flags
        return _Shown(view, is_ascii=self._is_ascii)

    def _start(self, shown: _Shown) -> None:
        shown.feed = Feed(
            shown.view,
            self._cluster.config(),
            lambda feed, answer: self.post_message(Answered(feed, answer)),
            after=shown.feed,
        )
        self._feeds = [each for each in self._feeds if not each.join(0)]
        self._feeds.append(shown.feed)
        shown.feed.start()

    def _go_to(self, stack: list[_Shown]) -> None:
        """Show the last view of another stack."""
        now = self._stack[-1]
        if self._is_applying:
            self.bell()  # the reset ends within its time limits
            return
        if stack[-1] is now:
            return
        if now.feed is not None:
            now.feed.close()
        self._stack = stack
        self._start(stack[-1])
        self._draw()

    @property
    def _numbers(self) -> list[str]:
        return [str(number) for number, _ in enumerate(self._roots, 1)]

    @property
    def _is_applying(self) -> bool:
        view = self._stack[-1].view
        return isinstance(view, ResetView) and view.is_applying

    def _change_to(self, cluster: NamedCluster) -> None:
        """Show another cluster; the list of clusters says why it cannot be shown."""
        is_on_terminal = cluster.asks and not cluster.is_loaded
        try:
            with self.suspend() if is_on_terminal else nullcontext():
                cluster.config()
        except RmqError as error:
            self._clusters.fail(cluster, error)
            self._draw()
            return
        self._cluster = cluster
        self._roots = (*self._views_of_cluster(), self._roots[-1])
        self._go_to([self._roots[0]])

    def _show(self, found: View | NamedCluster | Question | None) -> None:
        if isinstance(found, Question):
            self._ask(found)
        elif isinstance(found, NamedCluster):
            self._change_to(found)
        elif found is not None:
            self._go_to([*self._stack, self._shown(found)])
        else:
            self._draw()

    def on_answered(self, message: Answered) -> None:
        shown = self._stack[-1]
        view = shown.view
        if message.feed is not shown.feed:
            return
        if isinstance(message.answer, RmqError):
            shown.error = message.answer
            if isinstance(view, ResetView):
                view.fail(message.answer)
                if view.is_confirmed:
                    self.done.append(f"{view.title} failed: {message.answer.message}")
        else:
            shown.error = None
            shown.answered_ms = SYSTEM_CLOCK.epoch_ms()
            view.take(message.answer)
            if isinstance(view, ResetView) and view.outcome:
                self.done.append(view.outcome)
        self._draw()

    # --- what is on the screen ---

    def _draw(self) -> None:
        shown = self._stack[-1]
        width, height = self._board.size
        if not width or not height:
            return
        is_late = self._is_late(shown)
        shown.view.width = width
        shown.arrange(is_stale=is_late)
        content = self._content(shown, is_late=is_late)
        lines = shown.painter.draw(content, width, height)
        self._board.strips = [Strip(line, width) for line in lines]
        self._board.refresh()
        top, room = shown.painter.top, shown.painter.room
        view = shown.view
        view.on_screen = tuple(map(view.key_of, shown.rows[top : top + room]))

    def _is_late(self, shown: _Shown) -> bool:
        if shown.error is not None:
            return True
        limit_ms = shown.view.late_ms
        if shown.view.notes():  # a broker is silent, and was waited for, too
            limit_ms = max(limit_ms, self._cluster.config().timeout_ms + 1_000)
        return shown.feed is not None and shown.feed.late_ms > limit_ms

    def _content(self, shown: _Shown, *, is_late: bool) -> FrameContent:
        view = shown.view
        notes = list(view.notes())
        if shown.error is not None and shown.answered_ms is not None:
            notes.insert(0, view.worded(shown.error.message))
        return FrameContent(
            cluster=self._cluster.title,
            time=self._time(shown, is_late=is_late),
            is_late=is_late,
            tabs=[
                (f"{number} {root.view.title}", root is self._stack[0])
                for number, root in enumerate(self._roots, 1)
            ],
            path=self._path(shown),
            intro=view.intro(shown.row),
            columns=view.columns,
            rows=shown.rows,
            cursor=shown.cursor,
            empty=self._empty(shown),
            notes=notes,
            command=shlex.join(["rmq", *view.command_for(shown.row)]),
            keys=self._keys(view),
            question=self._question,
        )

    def _time(self, shown: _Shown, *, is_late: bool) -> str:
        at_ms = shown.answered_ms
        if is_late:
            is_silent = shown.error is None or isinstance(shown.error, TransportError)
            since = "" if at_ms is None else f" since {clock_time(at_ms)}"
            return f"{'no answer' if is_silent else 'not read'}{since}"
        if at_ms is None:
            return "reading ..."
        every = shown.view.interval_ms
        often = "" if every is None else f" every {format_duration(every)}"
        return f"{clock_time(at_ms)}{often}"

    def _path(self, shown: _Shown) -> str:
        view = shown.view
        parts = [each.view.title for each in self._stack[1:]]
        if view.parts:
            parts.append(f"[{view.parts[view.part]}]")
        if shown.filter:
            parts.append(f"/{shown.filter}")
        if view.sorts:
            order = ", reversed" if shown.is_reversed else ""
            # Before the first answer it is not known how many there are.
            count = "" if shown.answered_ms is None else f"{len(shown.rows):,} "
            parts.append(f"({count}by {shown.sort_name}{order})")
        return " > ".join(parts)

    def _empty(self, shown: _Shown) -> str:
        if shown.filter:
            return f"nothing contains {shown.filter!r}; / and enter shows all"
        error = shown.error
        if error is not None and shown.answered_ms is None:
            hint = shown.view.worded(error.hint)
            return shown.view.worded(error.message) + (f"; {hint}" if hint else "")
        return "reading ..." if shown.answered_ms is None else shown.view.none

    def _keys(self, view: View) -> list[tuple[str, str]]:
        own = [
            (key, each.label)
            for key, each in view.keys.items()
            if self._cluster.allow_changes or not each.changes
        ]
        if view.parts:
            own.append(("tab", view.parts[(view.part + 1) % len(view.parts)]))
        # A narrow terminal does not show the last ones.
        back = [("esc", "back")] if len(self._stack) > 1 else []
        sort = [("s", "sort")] if view.sorts else []
        general = [*back, ("q", "quit"), ("/", "filter"), ("f", "find"), *sort]
        return [("?", "help"), *own, *general]

    # --- keys, the mouse, and what is typed ---

    async def on_event(self, event: events.Event) -> None:
        """Take keys before a widget gets them, unless they answer a question.

        A key that had to bubble up from the board would open its question only after
        the next keys were taken for others, which a slow line brings together with it.
        """
        if (
            isinstance(event, events.Key)
            and not event.is_forwarded
            and event.key not in _BOUND
            and self._answer is None
            and self._feeds
        ):
            self._take_key(event)
        else:
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Take a key that the line for answers has left."""
        if event.key == "escape" and self._answer is not None:
            self._end_question()

    def _take_key(self, event: events.Key) -> None:
        shown, view = self._stack[-1], self._stack[-1].view
        page = max(1, shown.painter.room - 1)
        moves = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "pageup": -page,
            "pagedown": page,
        }
        own = view.keys.get(event.character or "")
        if event.key in moves:
            self._choose(shown.cursor + moves[event.key])
        elif event.key in ("home", "g"):
            self._choose(0)
        elif event.key in ("end", "G"):
            self._choose(len(shown.rows) - 1)
        elif event.key == "enter" and shown.row is not None:
            self._show(view.open(shown.row))
        elif event.key in ("escape", "backspace"):
            self._back()
        elif (key := event.character or "") in self._numbers:
            self._go_to([self._roots[self._numbers.index(key)]])
        elif own is not None and (self._cluster.allow_changes or not own.changes):
            self._show(own.action(shown.row))
        else:
            self._general_key(event.character or "", shown)

    def _general_key(self, key: str, shown: _Shown) -> None:
        match key:
            case "q":
                self.action_leave()
            case "?":
                self._show(HelpView())
            case "/":
                self._ask(Question("show only rows with: ", self._filter, shown.filter))
            case "f":
                self._ask(Question("find: ", self._find, self._found))
            case "n":
                self._find_next(1)
            case "N":
                self._find_next(-1)
            case "s" | "S" if shown.view.sorts:
                if key == "s":
                    shown.sort += 1
                else:
                    shown.is_reversed = not shown.is_reversed
                self._draw()
            case " " if shown.feed is not None:
                shown.feed.refresh()

    def _choose(self, index: int) -> None:
        self._stack[-1].choose(index)
        self._draw()

    def _back(self) -> None:
        if len(self._stack) > 1:
            self._go_to(self._stack[:-1])
        elif self._stack[-1].filter:
            self._filter("")

    def _filter(self, text: str) -> None:
        shown = self._stack[-1]
        shown.filter = text
        shown.key = None
        shown.painter.forget()
        self._draw()

    def _find(self, text: str) -> None:
        self._found = text
        self._find_next(1)

    def _find_next(self, step: int) -> None:
        shown = self._stack[-1]
        count = len(shown.rows)
        for offset in range(1, count + 1):
            index = (shown.cursor + offset * step) % count
            if self._found and shown.has(shown.rows[index], self._found):
                self._choose(index)
                return
        self.bell()

    def _ask(self, question: Question) -> None:
        self._answer, self._question = question.answered, question.text
        self._input.value = question.default
        self._input.cursor_position = len(question.default)
        self._input.display = True
        self.screen.set_focus(self._input)  # at once, for the keys that follow
        self.call_after_refresh(self._draw)

    def _end_question(self) -> None:
        self._answer, self._question = None, ""
        self._input.display = False
        self._board.focus()
        self.call_after_refresh(self._draw)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        answer = self._answer
        self._end_question()
        if answer is None:
            return
        found = answer(event.value)
        feed = self._stack[-1].feed
        if isinstance(self._stack[-1].view, ResetView) and feed is not None:
            feed.refresh()  # it may be confirmed now
        self._show(found)

    def on_click(self, event: events.Click) -> None:
        shown = self._stack[-1]
        index = shown.painter.top + event.y - shown.painter.first_line
        if event.y < shown.painter.first_line or index >= len(shown.rows):
            return
        self._choose(index)
        if event.chain == 2 and shown.row is not None:
            self._show(shown.view.open(shown.row))

    def on_mouse_scroll_down(self) -> None:
        self._choose(self._stack[-1].cursor + _WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._choose(self._stack[-1].cursor - _WHEEL_ROWS)

    def action_part(self) -> None:
        """Show the next table of the view."""
        shown = self._stack[-1]
        if self._answer is None and shown.view.parts:
            shown.view.next_part()
            shown.key = None
            shown.painter.forget()
            self._draw()

    def action_leave(self) -> None:
        """End, unless a reset is being applied."""
        self._end(ExitCode.OK)

    def action_interrupt(self) -> None:
        """End with the exit code of an interrupt, or give a question up."""
        if self._answer is not None:
            self._end_question()
        else:
            self._end(ExitCode.INTERRUPTED)

    def _end(self, code: int) -> None:
        if self._is_applying:
            self.bell()
        else:
            self.exit(code)

    @property
    def text(self) -> str:
        """What the screen shows, as lines of text."""
        return "\n".join(strip.text.rstrip() for strip in self._board.strips)
