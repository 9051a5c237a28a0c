//! The kernel's timers: a hierarchical wheel with ticks of 16 ms, where scheduling and cancelling cost the same however many wait.
//!
//! Never asks a clock, never fires early, and never searches through the timers that are not due.
//!
//! Eleven levels of 64 slots each hold every tick that an [`Instant`] can name, so no deadline is too far away. A timer stands at the
//! level of the highest digit (in base 64) in which its tick differs from the wheel's: level 0 holds the ticks of the present block
//! of 64, one a slot; a slot of a higher level is spread over the lower ones when its first tick comes. Since digits are compared, not
//! distances, no level wraps round, and the first timer is always in the first occupied slot of the lowest occupied level. (After
//! Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987.)

use std::fmt;

use crate::lists;
use crate::time::Instant;

/// A tick, in milliseconds: a timer fires at most this late. Reason: time-outs here are seconds; proxies' are tens of seconds.
pub const TICK_MILLIS: u64 = 16;

/// Bits of a digit: 64 slots a level, the occupied ones a word.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// Enough digits for 2⁶⁰, the tick of the last instant.
const LEVELS: usize = 11;
/// No entry.
const NONE: u32 = u32::MAX;

/// A scheduled timer's name. Once the timer has fired or was cancelled it names nothing, also when its memory serves another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timer {
    entry: u32,
    generation: u32,
}

/// Timers by instant, each with an item to hand back when it is due.
///
/// Items come out in the order of their deadlines' ticks; those of one tick in the order in which they were scheduled (unless the
/// clock jumped back in between). A deadline that is past when it is scheduled counts as the present.
pub struct Wheel<T> {
    /// Every timer before this tick has fired.
    now: u64,
    levels: [Level; LEVELS],
    /// A bit for each level that holds a timer.
    occupied: u16,
    entries: Vec<Entry<T>>,
    /// First of the chain of free entries.
    free: u32,
    len: usize,
}

#[derive(Clone, Copy)]
struct Level {
    /// A bit for each slot that holds a timer.
    occupied: u64,
    /// The oldest entry of each slot's ring; `NONE` where the slot is empty.
    first: [u32; SLOTS],
}

struct Entry<T> {
    /// `None` while free.
    item: Option<T>,
    /// The first tick not before the deadline.
    tick: u64,
    /// In the slot's ring; for a free entry, the next free one.
    next: u32,
    previous: u32,
    /// How many timers had this entry before.
    generation: u32,
    level: u8,
    slot: u8,
}

impl<T> Wheel<T> {
    /// An empty wheel at this instant.
    pub fn new(now: Instant) -> Self {
        Self {
            now: tick_of(now),
            levels: [Level { occupied: 0, first: [NONE; SLOTS] }; LEVELS],
            occupied: 0,
            entries: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// Hands `item` back at the first [`pop_due`](Self::pop_due) of a tick that is not before `at`.
    pub fn schedule(&mut self, at: Instant, item: T) -> Timer {
        let entry = self.allocate(item, tick_not_before(at));
        self.place(entry);
        self.len += 1;
        Timer { entry, generation: self.entries[index(entry)].generation }
    }

    /// Takes a timer out; `None` when it has fired or was cancelled before.
    pub fn cancel(&mut self, timer: Timer) -> Option<T> {
        let entry = self.entries.get(index(timer.entry)).filter(|entry| entry.generation == timer.generation)?;
        entry.item.as_ref()?;
        self.unlink(timer.entry);
        self.release(timer.entry)
    }

    /// The next item that is due at `now`; `None` when no more are. A timer scheduled between two calls for an instant not after `now`
    /// comes out in the same round, so a handler that reschedules itself must do so for later.
    ///
    /// A clock that jumped back takes the wheel with it: nothing fires again, what waits fires at its time by the new clock, and the
    /// call looks at each timer once.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let now = tick_of(now);
        if now < self.now {
            self.rewind(now);
        }
        loop {
            match self.first() {
                Some((level, slot, start)) if start <= now => {
                    self.now = start;
                    if level > 0 {
                        self.spread(level, slot);
                        continue;
                    }
                    let entry = self.levels[0].first[slot];
                    self.unlink(entry);
                    return self.release(entry);
                }
                _ => {
                    self.now = now;
                    return None;
                }
            }
        }
    }

    /// When [`pop_due`](Self::pop_due) should be called at the latest: less than a tick after the first deadline. It may be earlier
    /// (at most ten times for each timer), when there is only sorting to do. `None` when nothing is scheduled.
    pub fn next(&self) -> Option<Instant> {
        self.first().map(|(_, _, start)| Instant::from_millis(start.saturating_mul(TICK_MILLIS)))
    }

    /// How many timers wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first occupied slot in time: its level, its number, and its first tick.
    fn first(&self) -> Option<(usize, usize, u64)> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros();
        let slot = self.levels[level as usize].occupied.trailing_zeros();
        let shift = level * DIGIT_BITS;
        let higher_digits = self.now.checked_shr(shift + DIGIT_BITS).unwrap_or(0).checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        Some((level as usize, slot as usize, higher_digits | u64::from(slot) << shift))
    }

    /// Puts an entry into the slot that its tick has, seen from the present tick.
    fn place(&mut self, entry: u32) {
        let tick = self.entries[index(entry)].tick.max(self.now);
        let level = (tick ^ self.now).checked_ilog2().unwrap_or(0) / DIGIT_BITS;
        let slot = (tick >> (level * DIGIT_BITS)) as usize % SLOTS;
        self.link(entry, level as usize, slot);
    }

    /// Moves a slot's entries to lower levels, now that its first tick is the present.
    fn spread(&mut self, level: usize, slot: usize) {
        while self.levels[level].occupied & 1 << slot != 0 {
            let entry = self.levels[level].first[slot];
            self.unlink(entry);
            self.place(entry);
        }
    }

    /// Makes an earlier tick the present and finds each entry its new place.
    fn rewind(&mut self, now: u64) {
        let mut waiting = Vec::with_capacity(self.len);
        while let Some((level, slot, _)) = self.first() {
            let first = self.levels[level].first[slot];
            self.unlink(first);
            waiting.push(first);
        }
        self.now = now;
        for entry in waiting {
            self.place(entry);
        }
    }

    /// Appends an entry to a slot's ring.
    fn link(&mut self, entry: u32, level: usize, slot: usize) {
        let first = self.levels[level].first[slot];
        let (next, previous) = if first == NONE {
            self.levels[level].first[slot] = entry;
            self.levels[level].occupied |= 1 << slot;
            self.occupied |= 1 << level;
            (entry, entry)
        } else {
            (first, self.entries[index(first)].previous)
        };
        let place = &mut self.entries[index(entry)];
        (place.next, place.previous, place.level, place.slot) = (next, previous, level as u8, slot as u8);
        self.entries[index(previous)].next = entry;
        self.entries[index(next)].previous = entry;
    }

    /// Takes an entry out of its slot's ring.
    fn unlink(&mut self, entry: u32) {
        let Entry { next, previous, level, slot, .. } = self.entries[index(entry)];
        self.entries[index(previous)].next = next;
        self.entries[index(next)].previous = previous;
        let level_index = usize::from(level);
        let level = &mut self.levels[level_index];
        let first = &mut level.first[usize::from(slot)];
        if next == entry {
            *first = NONE;
            level.occupied &= !(1 << slot);
            if level.occupied == 0 {
                self.occupied &= !(1 << level_index);
            }
        } else if *first == entry {
            *first = next;
        }
    }

    /// A free entry, or a new one, with this item; in no ring yet.
    fn allocate(&mut self, item: T, tick: u64) -> u32 {
        if self.free == NONE {
            let entry = u32::try_from(self.entries.len()).ok().filter(|&entry| entry < NONE);
            let entry = entry.expect("4 billion timers need more memory than `limits` lets the kernel use");
            let entered = Entry { item: Some(item), tick, next: entry, previous: entry, generation: 0, level: 0, slot: 0 };
            lists::push(&mut self.entries, entered);
            return entry;
        }
        let entry = self.free;
        let place = &mut self.entries[index(entry)];
        self.free = place.next;
        (place.item, place.tick) = (Some(item), tick);
        entry
    }

    /// Frees an entry that is in no ring. One whose generations are used up is never used again, so that no `Timer` comes to name
    /// another timer: one entry less for each 2³² timers.
    fn release(&mut self, entry: u32) -> Option<T> {
        self.len -= 1;
        let place = &mut self.entries[index(entry)];
        if let Some(generation) = place.generation.checked_add(1) {
            (place.generation, place.next) = (generation, self.free);
            self.free = entry;
        }
        place.item.take()
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wheel at tick {}: {} timers, next {:?}", self.now, self.len, self.next())
    }
}

fn index(entry: u32) -> usize {
    entry as usize
}

/// The last tick that has begun.
fn tick_of(now: Instant) -> u64 {
    now.as_millis() / TICK_MILLIS
}

/// The first tick not before a deadline. For the last 15 ms of time that is after its end: such a deadline never comes.
fn tick_not_before(at: Instant) -> u64 {
    at.as_millis().div_ceil(TICK_MILLIS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn due<T>(wheel: &mut Wheel<T>, now: u64) -> Vec<T> {
        std::iter::from_fn(|| wheel.pop_due(at(now))).collect()
    }

    #[test]
    fn a_timer_fires_at_its_tick_and_once() {
        let mut wheel = Wheel::new(at(0));
        wheel.schedule(at(17), 'a');
        assert_eq!(wheel.next(), Some(at(32)));
        assert_eq!(due(&mut wheel, 31), []);
        assert_eq!(due(&mut wheel, 32), ['a']);
        assert_eq!(due(&mut wheel, 1_000), []);
        assert_eq!((wheel.len(), wheel.next()), (0, None));
    }

    #[test]
    fn a_stale_timer_cancels_nobody() {
        let mut wheel = Wheel::new(at(0));
        let fired = wheel.schedule(at(5), 'a');
        assert_eq!(due(&mut wheel, 16), ['a']);
        let cancelled = wheel.schedule(at(50), 'b');
        assert_eq!((wheel.cancel(cancelled), wheel.cancel(cancelled)), (Some('b'), None));
        wheel.schedule(at(60), 'c');
        assert_eq!((wheel.cancel(fired), wheel.cancel(cancelled), wheel.len()), (None, None, 1));
        assert_eq!(Wheel::<char>::new(at(0)).cancel(fired), None, "of another wheel");
    }

    #[test]
    fn an_entry_whose_generations_are_used_up_is_never_used_again() {
        let mut wheel = Wheel::new(at(0));
        wheel.schedule(at(5), 'a');
        wheel.entries[0].generation = u32::MAX;
        assert_eq!(due(&mut wheel, 16), ['a']);
        assert_eq!(wheel.cancel(Timer { entry: 0, generation: u32::MAX }), None);
        assert_eq!(wheel.schedule(at(5), 'b'), Timer { entry: 1, generation: 0 });
    }

    #[test]
    fn a_jump_of_years_costs_a_few_steps_a_timer() {
        const YEAR: u64 = 365 * 24 * 60 * 60 * 1000;
        let mut wheel = Wheel::new(at(7));
        for timer in 0..1_000 {
            wheel.schedule(at(timer * YEAR / 10), timer);
        }
        assert_eq!(due(&mut wheel, 40 * YEAR).len(), 401);
        assert_eq!(due(&mut wheel, u64::MAX).len(), 599);
    }

    #[test]
    fn a_deadline_too_far_away_never_comes() {
        let mut wheel = Wheel::new(at(0));
        wheel.schedule(at(u64::MAX), 'a');
        assert_eq!(due(&mut wheel, u64::MAX - 16), []);
        assert_eq!(wheel.len(), 1);
    }

    #[test]
    fn a_handler_that_reschedules_itself_under_a_clock_that_jumped_back_does_not_spin() {
        let mut wheel = Wheel::new(at(0));
        wheel.schedule(at(100_000), 'a');
        assert_eq!(due(&mut wheel, 100_000), ['a']);
        wheel.schedule(at(50_000 + 15_000), 'a');
        assert_eq!(due(&mut wheel, 50_000), []);
        assert_eq!(due(&mut wheel, 65_008), ['a']);
    }

    #[test]
    fn a_timer_costs_at_most_48_bytes() {
        assert!(size_of::<Entry<u64>>() <= 48, "{}", size_of::<Entry<u64>>());
    }

    #[derive(Clone, Debug)]
    enum Step {
        ScheduleIn(i64),
        ScheduleAt(u64),
        Cancel(usize),
        Pass(u64),
        PassToNext,
        JumpTo(u64),
    }

    /// Small, or of any magnitude.
    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..100, 0u64..5_000, (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (-100i64..3_000).prop_map(Step::ScheduleIn),
            3 => span().prop_map(Step::ScheduleAt),
            3 => any::<usize>().prop_map(Step::Cancel),
            3 => (0u64..2_000).prop_map(Step::Pass),
            3 => Just(Step::PassToNext),
            1 => span().prop_map(Step::JumpTo),
        ]
    }

    /// A sorted map of (tick, order of scheduling) to (deadline, name).
    struct Oracle {
        waiting: BTreeMap<(u64, usize), (u64, usize)>,
        now: u64,
    }

    impl Oracle {
        fn schedule(&mut self, deadline: u64, name: usize) {
            self.waiting.insert((deadline.div_ceil(16).max(self.now / 16), name), (deadline, name));
        }

        fn pass_to(&mut self, now: u64) -> Vec<(u64, usize)> {
            if now / 16 < self.now / 16 {
                self.now = now;
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_values().for_each(|(deadline, name)| self.schedule(deadline, name));
            }
            self.now = now;
            let later = self.waiting.split_off(&(now / 16 + 1, 0));
            std::mem::replace(&mut self.waiting, later).into_values().collect()
        }
    }

    proptest! {
        #[test]
        fn timers_fire_like_a_sorted_map(start in span(), steps in prop::collection::vec(step(), 0..120)) {
            let mut wheel = Wheel::new(at(start));
            let mut oracle = Oracle { waiting: BTreeMap::new(), now: start };
            let mut timers = Vec::new();
            for step in steps {
                let mut now = oracle.now;
                match step {
                    Step::ScheduleIn(_) | Step::ScheduleAt(_) => {
                        let deadline = match step {
                            Step::ScheduleIn(span) => now.saturating_add_signed(span),
                            Step::ScheduleAt(deadline) => deadline,
                            _ => unreachable!(),
                        };
                        oracle.schedule(deadline, timers.len());
                        timers.push(wheel.schedule(at(deadline), (deadline, timers.len())));
                    }
                    Step::Cancel(which) if !timers.is_empty() => {
                        let name = which % timers.len();
                        let key = oracle.waiting.iter().find(|(_, waits)| waits.1 == name).map(|(key, _)| *key);
                        prop_assert_eq!(wheel.cancel(timers[name]), key.and_then(|key| oracle.waiting.remove(&key)));
                    }
                    Step::Cancel(_) => {}
                    Step::Pass(span) => now = now.saturating_add(span),
                    Step::PassToNext => now = wheel.next().map_or(now, |next| next.as_millis().max(now)),
                    Step::JumpTo(instant) => now = instant,
                }
                if now != oracle.now {
                    let fired = due(&mut wheel, now);
                    prop_assert_eq!(&fired, &oracle.pass_to(now));
                    prop_assert!(fired.iter().all(|(deadline, _)| *deadline <= now), "early");
                    prop_assert!(oracle.waiting.values().all(|(deadline, _)| deadline.saturating_add(16) > now), "late");
                }
                prop_assert_eq!(wheel.len(), oracle.waiting.len());
                let first = oracle.waiting.first_key_value().map(|((tick, _), _)| tick.saturating_mul(16));
                prop_assert_eq!(wheel.next().is_some(), first.is_some());
                prop_assert!(wheel.next() <= first.map(at), "the shell would oversleep");
            }
        }

        #[test]
        fn waking_at_next_fires_all_in_a_few_wakes_each(deadlines in prop::collection::vec(span(), 1..40)) {
            let mut wheel = Wheel::new(at(0));
            deadlines.iter().for_each(|&deadline| { wheel.schedule(at(deadline), deadline); });
            let (mut fired, mut wakes) = (Vec::new(), 0);
            while let Some(next) = wheel.next() && next < at(u64::MAX) {
                fired.extend(due(&mut wheel, next.as_millis()));
                wakes += 1;
            }
            prop_assert!(fired.is_sorted_by_key(|deadline| deadline.div_ceil(16)));
            prop_assert_eq!(fired.len() + wheel.len(), deadlines.len());
            prop_assert!(wakes <= deadlines.len() * LEVELS, "{} wakes", wakes);
        }
    }
}
