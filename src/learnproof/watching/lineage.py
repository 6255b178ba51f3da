"""Networks that follow others: targets, snapshots, references, averages.

A follower is a module of the same class and shapes as one that an optimizer trains, with at least one tensor that no
optimizer owns, or with the very same tensors (a shallow copy); a part of a larger network only if it equals its leader when met, or is called like a follower. Eight numbers of it and of its leader are read at every optimizer step, through views that cost no copy, so
that a change is seen whatever made it (load_state_dict, .data, foreach, an in-place lerp). Versions of tensors are no
help: fused optimizers and .data do not count them up.

    follower        met: its leader, how many tensors they share, whether they are equal now
    follower_moved  numbers before and after, and the leader's then and now; the first 64 times, then ever rarer
    follower_totals steps seen, changes seen, the last one
"""

from __future__ import annotations

import weakref
from typing import Any

from .session import Session, reading, sense

NUMBERS = 8
MOVES_TOLD = 64
FOLLOWERS = 16


class Numbers:
    """Of a tensor of a type that memoryview does not know, read in its way."""

    def __init__(self, flat: Any) -> None:
        self.flat = flat

    def __getitem__(self, at: int) -> float:
        return float(self.flat.item(at))


def attach(session: Session) -> None:
    session.senses["lineage"] = Lineage(session)


class Follower:
    def __init__(self, index: int, module: Any, leader: Any) -> None:
        self.index = index
        self.pair = (id(module), id(leader))
        self._module = weakref.ref(module)
        self._leader = weakref.ref(leader)
        self.steps = 0
        self.moves = 0
        self.last_move = -1
        self.asked = 0
        """How often its state_dict() was asked for."""
        self.looks = 0
        self.pulls = 0
        """Of so many looks before a step, those at which the leader stood elsewhere than after the step before."""
        self.views: list[tuple[Any, int]] = []
        """The numbers of a tensor, and the place of one."""
        self.leader_views: list[tuple[Any, int]] = []
        self.statistics = _statistics(module), _statistics(leader)
        """Numbers of their buffers (running means) when they met."""
        self.pointers: tuple[int, ...] = ()
        self.now: list[float] = []
        self.leader_now: list[float] = []
        self.look_up()

    @property
    def module(self) -> Any:
        return self._module()

    @property
    def leader(self) -> Any:
        return self._leader()

    @property
    def alive(self) -> bool:
        return self._module() is not None and self._leader() is not None

    def look_up(self) -> None:
        """Make the views anew; `.data = ...` and load_state_dict(assign=True) leave old ones behind."""
        own, led = list(self.module.parameters()), list(self.leader.parameters())
        self.pointers = _pointers(own, led)
        places = _places([p.numel() for p in own])
        self.views = [(_numbers_of(own[tensor]), at) for tensor, at in places]
        self.leader_views = [(_numbers_of(led[tensor]), at) for tensor, at in places]
        self.now = _read(self.views)
        self.leader_now = _read(self.leader_views)

    def shared(self) -> int:
        pairs = zip(self.module.parameters(), self.leader.parameters())
        return sum(a.data_ptr() == b.data_ptr() for a, b in pairs)

    def statistics_moved(self) -> list[bool] | None:
        """Whether its running statistics moved, and its leader's; None where there are none."""
        if not self.alive or not self.statistics[0]:
            return None
        return [_statistics(each) != before for each, before in zip((self.module, self.leader), self.statistics)]

    def moved_storage(self) -> bool:
        return self.pointers != _pointers(list(self.module.parameters()), list(self.leader.parameters()))


class Lineage:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.followers: list[Follower] = []
        self.paired: dict[tuple[int, int], bool] = {}
        self.looked_at = (-1, -1)
        self.met_so_far = 0

    def move_to(self, child: Session) -> None:
        self.session = child
        self.followers, self.paired, self.looked_at = [], {}, (-1, -1)
        child.senses["lineage"] = self

    def stop(self) -> None:
        self.followers = []

    def before_step(self) -> None:
        """Before a measured step: new pairs are met while leader and follower may still be equal."""
        self._look_for_pairs()

    def after_step(self) -> None:
        """After every optimizer step, before the script can touch its targets."""
        if self.followers:
            self._follow()

    @sense("lineage")
    def _follow(self) -> None:
        for follower in tuple(self.followers):
            if not follower.alive:
                self.followers.remove(follower)  # its views would keep the weights of a deleted network in memory
                self._tell_totals(follower)
                self.paired.pop(follower.pair, None)
                self.looked_at = (-1, -1)  # a network that was made anew may stand in its place
                continue
            follower.steps += 1
            now = _read(follower.views)
            if now != follower.now:
                self._moved(follower, now)
            follower.leader_now = _read(follower.leader_views)

    def _moved(self, follower: Follower, now: list[float]) -> None:
        follower.moves += 1
        session = self.session
        if follower.moves <= MOVES_TOLD or follower.moves & (follower.moves - 1) == 0:
            session.say(
                "follower_moved",
                follower=follower.index,
                update=session.updates,
                before=follower.now,
                after=now,
                leader_before=follower.leader_now,
                leader_after=_read(follower.leader_views),
            )
        follower.now = now
        follower.last_move = session.updates

    @reading("lineage")
    def _look_for_pairs(self) -> None:
        session = self.session
        optimizers = session.senses["optimizers"]
        state = (session.names.made, optimizers.met_so_far)
        for follower in self.followers:
            if follower.alive and follower.steps:
                follower.looks += 1
                follower.pulls += _read(follower.leader_views) != follower.leader_now
            if follower.alive and follower.moved_storage():
                follower.look_up()
                self._tell(follower, "follower_storage")
        if state == self.looked_at or len(self.followers) >= FOLLOWERS:
            return
        self.looked_at = state
        optimizers.tell_modules()
        owned = optimizers.owned_ids()
        inside: set[int] = set()
        groups: dict[Any, list[Any]] = {}
        outermost = {id(module) for module in session.names.outermost()}
        by_size = sorted(session.names.modules(), key=lambda m: -sum(1 for _ in m.parameters()))
        for module in by_size:
            shapes = tuple(tuple(p.shape) for p in module.parameters())
            if shapes and id(module) not in inside:
                groups.setdefault((type(module).__name__, shapes), []).append(module)
        for alike in groups.values():
            leaders = [m for m in alike if all(id(p) in owned for p in m.parameters())]
            for module in alike:
                if leaders and any(id(p) not in owned for p in module.parameters()):
                    leader = _nearest(module, leaders)
                    if (
                        id(module) in outermost
                        or _looks_like_one(session.names.of_module(module))
                        or _equal(module, leader)
                    ):
                        self._pair(module, leader, inside)
            for module, leader in _shallow_copies([m for m in leaders if id(m) in outermost]):
                self._pair(module, leader, inside)

    def _pair(self, module: Any, leader: Any, inside: set[int]) -> None:
        if id(module) in inside or len(self.followers) >= FOLLOWERS:
            return
        if (id(module), id(leader)) in self.paired:
            inside.update(id(inner) for inner in module.modules())
            return
        self.paired[(id(module), id(leader))] = True
        if any(p.device.type != "cpu" for p in module.parameters()):
            self.session.not_seen("lineage", "a follower is not on the CPU, where reading it would wait for the device")
            return
        for inner in module.modules():
            inside.add(id(inner))
        follower = Follower(self.met_so_far, module, leader)
        self.met_so_far += 1
        self.followers.append(follower)
        self._tell(follower, "follower")

    def _tell(self, follower: Follower, kind: str) -> None:
        self.session.say(
            kind,
            index=follower.index,
            update=self.session.updates,
            name=self.session.names.of_follower(follower.module, follower.leader),
            leader=self.session.names.of_module(follower.leader),
            tensors=sum(1 for _ in follower.module.parameters()),
            shared=follower.shared(),
            equal=follower.now == follower.leader_now,
            follower=follower.now,
            leader_now=follower.leader_now,
        )

    def last_words(self) -> None:
        for follower in self.followers:
            self._tell_totals(follower)

    def _tell_totals(self, follower: Follower) -> None:
        self.session.say(
            "follower_totals",
            last=True,
            index=follower.index,
            steps=follower.steps,
            moves=follower.moves,
            last_move=follower.last_move,
            looks=follower.looks,
            pulls=follower.pulls,
            asked=follower.asked,
            shared=follower.shared() if follower.alive else None,
            statistics=follower.statistics_moved(),
            equal=_read(follower.views) == _read(follower.leader_views),
        )


def _shallow_copies(modules: list[Any]) -> list[tuple[Any, Any]]:
    """(copy, original): two objects, made one after the other, that hold the very same tensors, as copy.copy makes them."""
    first: dict[tuple[int, ...], Any] = {}
    found = []
    for module in modules:
        leader = first.setdefault(tuple(id(p) for p in module.parameters()), module)
        if leader is not module:
            found.append((module, leader))
    return found


def _nearest(module: Any, leaders: list[Any]) -> Any:
    """Of several leaders of the same form (twin critics), the one whose weights are nearest."""

    def distance(leader: Any) -> float:
        pairs = zip(module.parameters(), leader.parameters())
        return float(sum((a.detach() - b.detach()).abs().sum().item() for a, b in pairs))

    return min(leaders, key=distance)


def _looks_like_one(name: str) -> bool:
    """Parts of one network are often of one form; such a part follows another only if its name or its weights say so."""
    return any(word in name.lower() for word in ("target", "tgt", "ema", "ref", "old", "slow", "momentum"))


def _equal(module: Any, leader: Any) -> bool:
    return all(bool((a == b).all()) for a, b in zip(module.parameters(), leader.parameters()))


def _places(sizes: list[int]) -> list[tuple[int, int]]:
    """(tensor, position) of up to NUMBERS numbers: the middle of tensors that are spread over the network."""
    count = min(NUMBERS, len(sizes))
    chosen = [round(i * (len(sizes) - 1) / max(1, count - 1)) for i in range(count)]
    places = [(tensor, sizes[tensor] // 2) for tensor in chosen if sizes[tensor]]
    for tensor in range(len(sizes)):
        if len(places) >= NUMBERS:
            break
        if sizes[tensor] > 1:
            places.append((tensor, sizes[tensor] // 3))
    return places


def _numbers_of(tensor: Any) -> Any:
    """As they are whenever one is asked for. At every step some are: a memoryview gives one in half of the time that NumPy takes, and
    knows single and double precision."""
    flat = tensor.detach().reshape(-1).numpy()
    return memoryview(flat) if flat.dtype.char in "fd" else Numbers(flat)


def _read(views: list[tuple[Any, int]]) -> list[float]:
    return [numbers[at] for numbers, at in views]


def _statistics(module: Any) -> list[float]:
    """A number of each buffer that is no whole number: means and variances, not counts."""
    buffers = [b.detach().reshape(-1) for b in module.buffers() if b.is_floating_point() and b.numel()]
    return [float(buffer[len(buffer) // 2]) for buffer in buffers[:NUMBERS]]


def _pointers(own: list[Any], led: list[Any]) -> tuple[int, ...]:
    return tuple(p.data_ptr() for p in own) + tuple(p.data_ptr() for p in led)
