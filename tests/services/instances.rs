//! Many instances on one PostgreSQL and one Kafka: names, shares, hand-overs, deaths and zombies. Each story is alone with the services:
//! what is measured here are the service's times, not those of stories beside it.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until, until_since};

use crate::chaos::pass;
use crate::check;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::http::{Http, tea};
use crate::load::{Answered, Load};
use crate::process::{command, finish};

/// The default number of partitions: what most installations have.
const PARTITIONS: usize = 64;
const MANY: (&str, &str) = ("POSTHASTE__OUTBOX__PARTITIONS", "64");
/// Longer than the most patient of tests: whoever waits for one of these is found out.
pub const SLOW: [(&str, &str); 3] =
    [MANY, ("POSTHASTE__OUTBOX__LEASE", "120s"), ("POSTHASTE__PARTITIONS__DEAD_AFTER", "60s")];
/// The relay's longest stall after a kill, with the ground's times: dead_after + one lease + 3 s.
const STALL_MAX: Duration = Duration::from_secs(2 + 3 + 3);
/// Longest until nothing waits any more after the load has ended; nothing is promised about that.
const DRAIN: Duration = Duration::from_secs(30);
/// "Within seconds."
const SECONDS: Duration = Duration::from_secs(10);

/// Load at every instance of these; each is asked for itself, so that what it answers is known.
struct Everywhere(Vec<Load>);

impl Everywhere {
    fn at(doors: &[Http]) -> Self {
        let everywhere = Self(doors.iter().map(|door| Load::start(door, 2)).collect());
        until("load runs everywhere", SECONDS, || everywhere.0.iter().all(|load| load.answered() > 20).then_some(()));
        everywhere
    }

    fn finish(self) -> Answered {
        self.0.into_iter().flat_map(Load::finish).collect()
    }
}

/// Every partition is in somebody's hands, and nobody has more than a fair share of them.
fn await_fair(fleet: &Fleet<'_>, limit: Duration) -> Duration {
    let (begun, most) = (Instant::now(), PARTITIONS.div_ceil(fleet.size()));
    loop {
        let shares = fleet.shares();
        if shares.iter().sum::<usize>() == PARTITIONS && shares.iter().all(|share| *share <= most) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < scaled(limit), "shares are {shares:?} and not fair after {limit:?}");
        pass(Duration::from_millis(50));
    }
}

fn await_shares(fleet: &Fleet<'_>, wanted: &[usize], limit: Duration) -> Duration {
    let (begun, mut shares) = (Instant::now(), fleet.shares());
    while {
        shares.sort_unstable();
        shares != wanted
    } {
        assert!(begun.elapsed() < scaled(limit), "shares are {shares:?} and not {wanted:?} after {limit:?}");
        pass(Duration::from_millis(50));
        shares = fleet.shares();
    }
    begun.elapsed()
}

/// Orders enough to meet most partitions, and how long since `begun` until the last event that was there after them has left.
fn flow(ground: &Ground, door: &Http, begun: Instant, limit: Duration) -> (Answered, Duration) {
    let user = door.user();
    let place = |_| door.post("/orders", &user, &[], &tea(1)).json()["id"].as_str().expect("an id").to_owned();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..PARTITIONS / 2).map(place).collect::<Vec<_>>())).collect();
        clients.into_iter().flat_map(|client| client.join().expect("every order is answered")).collect()
    });
    let last = &ground.database.rows("SELECT max(id) FROM outbox_event")[0][0];
    let waiting = format!("SELECT count(*) FROM outbox WHERE id <= {last}");
    until_since(begun, "everything has left", limit, || (ground.database.rows(&waiting)[0][0] == "0").then_some(()));
    (ids.into_iter().map(|id| (id, 1)).collect(), begun.elapsed())
}

fn await_empty(ground: &Ground, limit: Duration) {
    until("everything has left", limit, || {
        (ground.database.rows("SELECT count(*) FROM outbox")[0][0] == "0").then_some(())
    });
}

#[test]
fn a_second_live_holder_of_a_name_is_refused_and_told_who_has_it() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 1, &[]);
    let address = fleet.doors()[0].base().trim_start_matches("http://").to_owned();
    let pid = fleet.with(0, |process| process.pid().to_string());

    let begun = Instant::now();
    let (code, _, stderr) = finish(command(&ground, &["serve"]).env("POSTHASTE__INSTANCE__ID", "one"));

    assert!(
        code == 1 && begun.elapsed() < scaled(Duration::from_secs(5)),
        "{code} after {:?}: {stderr}",
        begun.elapsed()
    );
    for told in ["one", &pid, &address] {
        assert!(stderr.contains(told), "{told} is missing in: {stderr}");
    }
    fleet.await_ready(Duration::from_secs(1));
}

#[test]
fn shares_are_fair_within_seconds_whoever_comes_goes_or_dies_under_load() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 3, &[MANY]);
    let joined = await_fair(&fleet, SECONDS);
    let doors = fleet.doors();
    let load = Everywhere::at(&doors);

    let mut leaver = fleet.take(2);
    leaver.signal("TERM");
    assert!(leaver.ended(Duration::from_secs(25)).success(), "it hands over and leaves");
    let handed_over = await_shares(&fleet, &[0, 32, 32], SECONDS);
    fleet.kill(1);
    let taken_over = await_shares(&fleet, &[0, 0, 64], STALL_MAX);
    fleet.launch(1);
    fleet.launch(2);
    fleet.await_ready(SECONDS);
    let shared_again = await_fair(&fleet, SECONDS);

    eprintln!("joined {joined:?}, handed over {handed_over:?}, taken over {taken_over:?}, again {shared_again:?}");
    let answered = load.finish();
    await_empty(&ground, DRAIN);
    check::laws(&ground, &answered);
    fleet.assert_no_surprises();
}

#[test]
fn a_hand_over_waits_for_no_lease() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &SLOW);
    await_shares(&fleet, &[32, 32], SECONDS);
    let load = Everywhere::at(&fleet.doors());

    let mut leaver = fleet.take(0);
    leaver.signal("TERM");
    assert!(leaver.ended(SECONDS).success());
    let handed_over = await_shares(&fleet, &[0, 64], Duration::from_secs(5));

    let answered = load.finish();
    let (more, flowed) = flow(&ground, &fleet.doors()[1], Instant::now(), Duration::from_secs(5));
    eprintln!("handed over {handed_over:?} after the exit, everything flows {flowed:?}");
    check::laws(&ground, &answered.into_iter().chain(more).collect());
}

#[test]
fn after_kill_9_the_relay_stalls_no_longer_than_promised_and_readers_see_on() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &[MANY]);
    await_shares(&fleet, &[32, 32], SECONDS);
    let load = Everywhere::at(&fleet.doors());

    fleet.kill(0);
    let (more, stalled) = flow(&ground, &fleet.doors()[1], Instant::now(), STALL_MAX);

    eprintln!("everything flows {stalled:?} after the kill");
    assert!(stalled <= scaled(STALL_MAX), "{stalled:?}");
    let answered = load.finish();
    await_empty(&ground, DRAIN);
    check::laws(&ground, &answered.into_iter().chain(more).collect());
}

#[test]
fn a_restart_under_the_same_name_takes_its_partitions_back_at_once() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &SLOW);
    await_shares(&fleet, &[32, 32], SECONDS);
    let load = Everywhere::at(&fleet.doors());

    fleet.kill(0);
    let begun = Instant::now();
    fleet.launch(0);
    let ready = fleet.await_ready(SECONDS);
    let (more, _) = flow(&ground, &fleet.doors()[1], begun, Duration::from_secs(5));

    eprintln!("ready {ready:?}, everything flows {:?} after the start", begun.elapsed());
    assert_eq!(fleet.shares(), [32, 32]);
    let answered = load.finish();
    await_empty(&ground, DRAIN);
    check::laws(&ground, &answered.into_iter().chain(more).collect());
}

#[test]
fn a_zombie_that_thaws_after_its_lease_changes_nothing() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &[MANY]);
    await_shares(&fleet, &[32, 32], SECONDS);
    let load = Everywhere::at(&fleet.doors());

    for _ in 0..3 {
        fleet.freeze(1);
        await_shares(&fleet, &[0, 64], STALL_MAX);
        let (epochs, begun) = (owners_by_epoch(&ground), Instant::now());
        fleet.thaw(1);
        watch_epochs(&ground, epochs);
        await_shares(&fleet, &[32, 32], SECONDS);
        eprintln!("a thawed instance has its share again after {:?}", begun.elapsed());
    }

    let answered = load.finish();
    await_empty(&ground, DRAIN);
    check::laws(&ground, &answered);
    fleet.assert_no_surprises();
}

/// Who has which partition, by its latest acquisition.
fn owners_by_epoch(ground: &Ground) -> BTreeMap<(u32, u64), String> {
    let rows = ground.database.rows("SELECT partition, epoch, owner FROM outbox_lease WHERE owner IS NOT NULL");
    rows.into_iter()
        .map(|row| ((row[0].parse().expect("a number"), row[1].parse().expect("a number")), row[2].clone()))
        .collect()
}

/// Looks on for a while: an acquisition never changes hands, and none comes back.
fn watch_epochs(ground: &Ground, mut seen: BTreeMap<(u32, u64), String>) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for (acquisition, owner) in owners_by_epoch(ground) {
            let before = seen.entry(acquisition).or_insert_with(|| owner.clone());
            assert_eq!(*before, owner, "partition and epoch {acquisition:?} have changed hands");
            let latest = seen.range((acquisition.0, 0)..=(acquisition.0, u64::MAX)).next_back().map(|(at, _)| *at);
            assert_eq!(latest, Some(acquisition), "an acquisition came back");
        }
        pass(Duration::from_millis(20));
    }
}
