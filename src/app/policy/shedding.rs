//! How many commands may be under way at once before further ones are refused: as many as leave the standing queue short.
//!
//! A queue that empties now and then is a burst, and bursts pass; one that stands only makes everybody wait (Nichols and Jacobson, CoDel,
//! 2012). CoDel judges by the least wait of a while; ours is no single queue, and by chance some pass it at once while most wait: it stands
//! when hardly one in four is quick. The bound follows from Little's law: what was answered in the while, at the wait that is meant.
use std::time::Duration;

/// Who waits longer has stood in a queue: a few commits of a usual disk.
const WAIT_MAX: Duration = Duration::from_millis(15);
/// Always allowed: as many as make full use of the store; a slow one does not answer fewer any sooner.
const FLOOR: u32 = 128;
/// How long is looked at before the bound moves.
const WHILE: Duration = Duration::from_millis(200);
/// Fewer answers than this say nothing.
const ANSWERS_MIN: u32 = 16;
/// The queue stands when fewer than one in so many did not wait in it.
const QUICK_OF: u32 = 4;

/// The bound, and what is known of the while that runs. Times are since the service's start.
#[derive(Clone, Debug)]
pub struct Shedding {
    limit: u32,
    in_flight: u32,
    since: Duration,
    quick: u32,
    answers: u32,
}

impl Default for Shedding {
    fn default() -> Self {
        Self { limit: u32::MAX, in_flight: 0, since: Duration::ZERO, quick: 0, answers: 0 }
    }
}

impl Shedding {
    /// Lets a command in, or not. Whoever was let in must [`leave`](Self::leave).
    pub fn enter(&mut self) -> bool {
        let enters = self.in_flight < self.limit;
        self.in_flight += u32::from(enters);
        enters
    }

    /// A command is done. `took` where it went all the way to the store: what was refused on its way says nothing about the queue.
    pub fn leave(&mut self, now: Duration, took: Option<Duration>) {
        self.in_flight -= 1;
        let Some(took) = took else { return };
        self.quick += u32::from(took <= WAIT_MAX);
        self.answers += 1;
        let time = now.saturating_sub(self.since);
        if self.answers >= ANSWERS_MIN && time >= WHILE {
            self.limit = self.judged(time);
            (self.since, self.quick, self.answers) = (now, 0, 0);
        }
    }

    fn judged(&self, time: Duration) -> u32 {
        if self.quick < self.answers / QUICK_OF {
            let fit = f64::from(self.answers) * WAIT_MAX.as_secs_f64() / time.as_secs_f64();
            return (fit as u32).max(FLOOR);
        }
        // Step by step, so that whoever was refused does not come back all at once.
        self.limit.saturating_add(self.limit / 4)
    }

    /// Most commands at once, as it stands.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A store that answers so many in each millisecond, in the order in which they came, and clients who ask again at once.
    fn serve(shedding: &mut Shedding, clients: u32, per_ms: u32, time: Duration) -> (u32, Duration) {
        let (mut queue, mut longest) = (std::collections::VecDeque::new(), Duration::ZERO);
        let mut now = shedding.since;
        let end = now + time;
        while now < end {
            while (queue.len() as u32) < clients && shedding.enter() {
                queue.push_back(now);
            }
            now += ms(1);
            for came in queue.drain(..queue.len().min(per_ms as usize)) {
                longest = if now + ms(500) > end { longest.max(now - came) } else { Duration::ZERO };
                shedding.leave(now, Some(now - came));
            }
        }
        queue.iter().for_each(|_| shedding.leave(now, None));
        (shedding.limit(), longest)
    }

    #[test]
    fn far_past_its_capacity_those_who_are_let_in_wait_no_longer_than_meant() {
        let mut shedding = Shedding::default();

        let (limit, longest) = serve(&mut shedding, 5_000, 40, ms(5_000));

        assert!((480..=960).contains(&limit), "{limit}");
        assert!(longest <= 2 * WAIT_MAX, "{longest:?}");
    }

    #[test]
    fn nobody_is_refused_below_capacity_and_a_burst_passes() {
        let mut shedding = Shedding::default();

        assert_eq!(serve(&mut shedding, 140, 10, ms(5_000)).0, u32::MAX);
        let burst = (0..5_000).filter(|_| shedding.enter()).count();
        assert_eq!(burst, 5_000);
    }

    #[test]
    fn it_opens_again_by_itself_and_never_shuts_altogether() {
        let mut shedding = Shedding::default();
        let (limit, _) = serve(&mut shedding, 5_000, 1, ms(3_000));
        assert_eq!(limit, FLOOR, "a store that hardly answers");

        serve(&mut shedding, 5_000, 20, ms(5_000));

        assert!(shedding.limit() >= 240, "{}", shedding.limit());
    }

    #[test]
    fn what_never_reached_the_store_counts_for_nothing() {
        let mut shedding = Shedding::default();
        for n in 0..1_000 {
            assert!(shedding.enter());
            shedding.leave(ms(n), None);
        }
        assert_eq!((shedding.in_flight, shedding.answers), (0, 0));
    }
}
