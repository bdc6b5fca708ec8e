//! How many requests may be under way at once before further ones are refused: as many as leave the standing queue short.
//!
//! A queue that empties now and then is a burst, and bursts pass; one that stands only makes everybody wait (Nichols and Jacobson, CoDel,
//! 2012). CoDel judges by the least wait of a while; ours is no single queue, and by chance some pass it at once while most wait: it stands
//! when hardly one in four is quick. The bound follows from Little's law: what was answered in the while, at the wait that is meant.
//!
//! What is meant depends on who is outside. While hardly anybody is refused, a longer wait serves more, since commits share their price.
//! When a crowd is refused all the same, more waiting helps nobody: those who are let in then wait hardly longer than usual.
use std::time::Duration;

/// It is a crowd when more than one is refused for so many that are answered.
const CROWD_OF: u32 = 16;
/// Nothing is usual that is quicker than this: a store in memory would leave no room to wait at all.
const USUAL_MIN: Duration = Duration::from_millis(1);
/// How long is looked at before the bound moves.
const WHILE: Duration = Duration::from_millis(200);
/// Fewer answers than this say nothing.
const ANSWERS_MIN: u32 = 16;
/// The queue stands when fewer than one in so many did not wait in it.
const QUICK_OF: u32 = 4;

/// How many have room, whatever the times say.
#[derive(Clone, Copy, Debug)]
pub struct ConcurrencyLimits {
    /// So many may come at once before anything is known of them.
    burst: u32,
    /// Always allowed: as many as make full use of the store; a slow one does not answer fewer any sooner.
    floor: u32,
    /// Always allowed before a crowd.
    crowd_floor: u32,
    /// Who waits longer has stood in a queue.
    wait_max: Duration,
    /// What is usual before anything is known.
    usual: Duration,
}

impl ConcurrencyLimits {
    /// Commits share their price: 128 fill them on a slow disk, 32 are worth one. A burst waits a fortieth of a second at ten thousand a
    /// second; a few commits of a usual disk are no queue.
    pub const CHANGES: Self = Self { burst: 256, floor: 128, crowd_floor: 32, wait_max: ms(15), usual: ms(5) };
    /// One order: no more at once than a pool has connections, or a machine has cores.
    pub const READS: Self = Self { burst: 256, floor: 32, crowd_floor: 16, wait_max: ms(15), usual: ms(5) };
    /// A thousand orders are a third of a megabyte and some milliseconds of a core: a few at once keep it busy.
    pub const LISTS: Self = Self { burst: 128, floor: 16, crowd_floor: 8, wait_max: ms(100), usual: ms(20) };
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The bound, and what is known of the while that runs. Times are since the service's start.
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    room: ConcurrencyLimits,
    limit: u32,
    in_flight: u32,
    /// What one takes while nobody is refused.
    usual: Duration,
    crowded: bool,
    since: Duration,
    seen: Seen,
}

/// What happened in a while.
#[derive(Clone, Debug, Default)]
struct Seen {
    answers: u32,
    quick: u32,
    took: Duration,
    refused: u32,
}

impl AdaptiveLimit {
    /// Nothing is known yet.
    pub fn new(room: ConcurrencyLimits) -> Self {
        let (since, seen) = (Duration::ZERO, Seen::default());
        Self { room, limit: room.burst, in_flight: 0, usual: room.usual, crowded: false, since, seen }
    }

    /// Lets one in, or not. Whoever was let in must [`release`](Self::release).
    pub fn try_acquire(&mut self) -> bool {
        let enters = self.in_flight < self.limit;
        self.in_flight += u32::from(enters);
        self.seen.refused += u32::from(!enters);
        enters
    }

    /// One is done. `took` where it went all the way to the store: what was refused on its way says nothing about the queue.
    pub fn release(&mut self, now: Duration, took: Option<Duration>) {
        self.in_flight -= 1;
        let Some(took) = took else { return };
        self.seen.answers += 1;
        self.seen.quick += u32::from(took <= self.meant());
        self.seen.took += took;
        let time = now.saturating_sub(self.since);
        if self.seen.answers >= ANSWERS_MIN && time >= WHILE {
            self.judge(time);
            (self.since, self.seen) = (now, Seen::default());
        }
    }

    /// How long one may take, as things are.
    fn meant(&self) -> Duration {
        if self.crowded { self.usual * 3 / 2 } else { self.room.wait_max.max(self.usual * 2) }
    }

    fn judge(&mut self, time: Duration) {
        let Seen { answers, quick, took, refused } = self.seen;
        if refused == 0 {
            self.learn(took / answers);
        }
        let stands = if self.crowded { took / answers > self.meant() } else { quick < answers / QUICK_OF };
        let came = !self.crowded && refused > answers / CROWD_OF;
        self.crowded = refused > answers / CROWD_OF;
        self.limit = if stands || came { self.fitting(f64::from(answers) / time.as_secs_f64()) } else { self.wider() };
    }

    /// One slow while says little: what is usual moves slowly.
    fn learn(&mut self, took: Duration) {
        self.usual = (self.usual * 15 + took.clamp(USUAL_MIN, self.usual * 2)) / 16;
    }

    fn fitting(&self, answers_per_s: f64) -> u32 {
        let floor = if self.crowded { self.room.crowd_floor } else { self.room.floor };
        let fit = (answers_per_s * self.meant().as_secs_f64()) as u32;
        fit.min(self.limit).max(floor)
    }

    /// Step by step while some are refused: they would come back all at once.
    fn wider(&self) -> u32 {
        if self.seen.refused > 0 { self.limit.saturating_add(self.limit / 4) } else { self.limit.max(self.room.burst) }
    }

    /// Most at once, as it stands.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: ConcurrencyLimits = ConcurrencyLimits::CHANGES;

    /// A store that answers so many in each millisecond, in the order in which they came, and clients who ask again at once, or half a
    /// second to one and a half after they were refused. The longest wait is that of the last half second.
    fn serve(shedding: &mut AdaptiveLimit, clients: u32, per_ms: u32, time: Duration) -> (u32, Duration) {
        let (mut queue, mut longest) = (std::collections::VecDeque::new(), Duration::ZERO);
        let (begun, mut refused) = (shedding.since, 0);
        let millis = time.as_millis() as usize;
        let mut asking = vec![0; millis + 1_502];
        asking[0] = clients;
        for at in 0..millis {
            let now = begun + ms(at as u64);
            for _ in 0..asking[at] {
                if shedding.try_acquire() {
                    queue.push_back(now);
                } else {
                    refused += 1;
                    asking[at + 500 + refused * 618 % 1_000] += 1;
                }
            }
            let now = now + ms(1);
            for came in queue.drain(..queue.len().min(per_ms as usize)) {
                longest = if at + 500 > millis { longest.max(now - came) } else { Duration::ZERO };
                shedding.release(now, Some(now - came));
                asking[at + 1] += 1;
            }
        }
        queue.iter().for_each(|_| shedding.release(begun + time, None));
        (shedding.limit(), longest)
    }

    #[test]
    fn past_its_capacity_those_who_are_let_in_wait_no_longer_than_meant() {
        let mut shedding = AdaptiveLimit::new(ROOM);

        let (limit, longest) = serve(&mut shedding, 900, 40, ms(5_000));

        assert!((480..=800).contains(&limit), "{limit}");
        assert!(longest <= ROOM.wait_max * 3 / 2, "{longest:?}");
        assert!(!shedding.crowded);
    }

    #[test]
    fn before_a_crowd_those_who_are_let_in_wait_hardly_longer_than_usual() {
        let mut shedding = AdaptiveLimit::new(ROOM);
        let (_, usual) = serve(&mut shedding, 320, 40, ms(10_000));
        assert_eq!(usual, ms(8));

        let (limit, longest) = serve(&mut shedding, 10_000, 40, ms(10_000));

        assert!(longest <= usual * 2, "{longest:?}");
        assert!((320..=640).contains(&limit), "{limit}");
        assert!(shedding.usual.abs_diff(usual) < ms(1), "what a crowd waits is not usual: {:?}", shedding.usual);
    }

    #[test]
    fn nobody_is_refused_below_capacity_and_a_burst_passes() {
        let mut shedding = AdaptiveLimit::new(ROOM);

        assert_eq!(serve(&mut shedding, 140, 10, ms(5_000)).0, ROOM.burst);
        let burst = (0..5_000).filter(|_| shedding.try_acquire()).count();
        assert_eq!(burst, ROOM.burst as usize);
    }

    #[test]
    fn it_is_as_wide_as_what_is_made_use_of() {
        let mut shedding = AdaptiveLimit::new(ROOM);

        let (limit, _) = serve(&mut shedding, 2_000, 400, ms(5_000));

        assert!(limit >= 2_000, "{limit}");
    }

    #[test]
    fn it_opens_again_by_itself_and_never_shuts_altogether() {
        let mut shedding = AdaptiveLimit::new(ROOM);
        let (limit, _) = serve(&mut shedding, 5_000, 1, ms(3_000));
        assert_eq!(limit, ROOM.crowd_floor, "a store that hardly answers, and a crowd");
        let (limit, _) = serve(&mut shedding, 140, 1, ms(3_000));
        assert_eq!(limit, ROOM.floor, "a store that hardly answers");

        serve(&mut shedding, 5_000, 40, ms(5_000));

        assert!(shedding.limit() >= 200, "{}", shedding.limit());
    }

    #[test]
    fn a_store_that_is_slow_for_everybody_is_not_asked_less() {
        let mut shedding = AdaptiveLimit::new(ROOM);
        for n in 1..2_000 {
            assert!(shedding.try_acquire());
            shedding.release(ms(100) * n, Some(ms(100)));
        }
        assert!(shedding.meant() >= ms(190), "{:?}", shedding.meant());
        assert_eq!(shedding.limit(), ROOM.burst);
    }

    #[test]
    fn what_never_reached_the_store_counts_for_nothing() {
        let mut shedding = AdaptiveLimit::new(ROOM);
        for n in 0..1_000 {
            assert!(shedding.try_acquire());
            shedding.release(ms(n), None);
        }
        assert_eq!((shedding.in_flight, shedding.seen.answers), (0, 0));
    }
}
