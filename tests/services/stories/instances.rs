//! Several instances on one PostgreSQL and one Kafka: instance ids, shares, handovers, kills and zombies. Each test has the services for
//! itself, so that other tests do not distort the times that it measures.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kit::wait::{pause, scaled, until, until_since};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::{Http, tea_order};
use crate::harness::load::{Acknowledged, Load};
use crate::harness::metrics::metric;
use crate::harness::process::{Posthaste, command, finish, setting};

/// The default number of partitions.
const PARTITIONS: usize = 64;
const DEFAULT_PARTITIONS: (&str, &str) = ("POSTHASTE__OUTBOX__PARTITIONS", "64");
/// Timeouts longer than any wait of a test: an event that waits for one of them fails the test. A stop that was cut short by its deadline
/// would leave leases that no other instance takes.
pub const LONG_TIMEOUTS: [(&str, &str); 4] = [
    DEFAULT_PARTITIONS,
    ("POSTHASTE__OUTBOX__LEASE", "1200s"),
    ("POSTHASTE__PARTITIONS__DEAD_AFTER", "600s"),
    ("POSTHASTE__SHUTDOWN__DEADLINE", "120s"),
];
/// The relay's longest stall after a kill with the backend's settings: dead_after + one lease + 3 s.
const STALL_MAX: Duration = Duration::from_secs(2 + 3 + 3);
/// Longest until no row waits after the load has ended; the contract has no limit for this.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// Longest that the contract's "within seconds" may take.
const SECONDS_MAX: Duration = Duration::from_secs(10);
/// Calls that Redis did not answer in time, of every component.
const REDIS_FAILURES: &str = "redis_connection_failures_total";

/// Load on every instance, each with its own record of acknowledged orders.
struct LoadOnAll(Vec<Load>);

impl LoadOnAll {
    fn start(endpoints: &[Http]) -> Self {
        let all = Self(endpoints.iter().map(|endpoint| Load::start(endpoint, 2)).collect());
        until("load runs on every instance", SECONDS_MAX, || {
            all.0.iter().all(|load| load.acknowledged() > 20).then_some(())
        });
        all
    }

    fn finish(self) -> Acknowledged {
        self.0.into_iter().flat_map(Load::finish).collect()
    }
}

/// Waits until every partition has an owner and no instance has more than a fair share.
fn await_fair(fleet: &Fleet<'_>, limit: Duration) -> Duration {
    let (started, most) = (Instant::now(), PARTITIONS.div_ceil(fleet.size()));
    loop {
        let shares = fleet.shares();
        if shares.iter().sum::<usize>() == PARTITIONS && shares.iter().all(|share| *share <= most) {
            return started.elapsed();
        }
        assert!(started.elapsed() < scaled(limit), "shares are {shares:?} and not fair after {limit:?}");
        pause(Duration::from_millis(50));
    }
}

fn await_shares(fleet: &Fleet<'_>, wanted: &[usize], limit: Duration) -> Duration {
    let (started, mut shares) = (Instant::now(), fleet.shares());
    while {
        shares.sort_unstable();
        shares != wanted
    } {
        assert!(started.elapsed() < scaled(limit), "shares are {shares:?} and not {wanted:?} after {limit:?}");
        pause(Duration::from_millis(50));
        shares = fleet.shares();
    }
    started.elapsed()
}

/// Creates orders on most partitions. Returns them, and the time from `started` until every event that existed afterwards was sent.
fn create_and_await_sent(
    backend: &Backend,
    endpoint: &Http,
    started: Instant,
    limit: Duration,
) -> (Acknowledged, Duration) {
    let user = endpoint.user();
    let place_order =
        |_| endpoint.post("/orders", &user, &[], &tea_order(1)).json()["id"].as_str().expect("an id").to_owned();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..PARTITIONS / 2).map(place_order).collect::<Vec<_>>())).collect();
        clients.into_iter().flat_map(|client| client.join().expect("every order is acknowledged")).collect()
    });
    let last = &backend.database.rows("SELECT max(id) FROM outbox_event")[0][0];
    let waiting = format!("SELECT count(*) FROM outbox WHERE id <= {last}");
    until_since(started, "every event is sent", limit, || (backend.database.rows(&waiting)[0][0] == "0").then_some(()));
    (ids.into_iter().map(|id| (id, 1)).collect(), started.elapsed())
}

fn await_empty(backend: &Backend, limit: Duration) {
    until("every event is sent", limit, || {
        (backend.database.rows("SELECT count(*) FROM outbox")[0][0] == "0").then_some(())
    });
}

#[test]
fn a_second_process_with_a_live_instance_id_is_refused_with_the_holders_pid() {
    let backend = Backend::exclusive();
    // The holder stays alive, however slow its heartbeats are.
    let lives_long = ("POSTHASTE__PARTITIONS__DEAD_AFTER", "60s");
    let fleet = Fleet::start(&backend, 1, &[lives_long]);
    let address = fleet.endpoints()[0].base().trim_start_matches("http://").to_owned();
    let pid = fleet.with_process(0, |process| process.pid().to_string());

    let started = Instant::now();
    let mut second = command(&backend, &["serve"]);
    let (code, _, stderr) = finish(second.env("POSTHASTE__INSTANCE__ID", "one").env(lives_long.0, lives_long.1));

    assert!(code == 1 && started.elapsed() < scaled(SECONDS_MAX), "{code} after {:?}: {stderr}", started.elapsed());
    for text in ["one", &pid, &address] {
        assert!(stderr.contains(text), "{text} is missing in: {stderr}");
    }
    fleet.await_ready(SECONDS_MAX);
}

#[test]
fn producer_sessions_of_an_instance_that_left_are_removed() {
    let backend = Backend::new();
    let former = Posthaste::start(&backend, &[("POSTHASTE__INSTANCE__ID", "former")]);
    former.http.post("/orders", &former.http.user(), &[], &tea_order(1));
    await_empty(&backend, DRAIN_MAX);
    assert!(former.stop().success());

    let service = Posthaste::start(&backend, &[]);
    let forgotten = until("its sessions are forgotten", Duration::from_secs(60), || {
        service.logged("sessions_forgotten").first().and_then(|line| line["forgotten"].as_u64())
    });

    assert!(forgotten > 0);
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    await_empty(&backend, DRAIN_MAX);
}

#[test]
fn partitions_are_shared_fairly_after_joins_stops_and_kills_under_load() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 3, &[DEFAULT_PARTITIONS]);
    let joined = await_fair(&fleet, SECONDS_MAX);
    let load = LoadOnAll::start(&fleet.endpoints_with_short_timeout());

    let mut leaving = fleet.take(2);
    leaving.signal("TERM");
    assert!(leaving.await_exit(Duration::from_secs(25)).success(), "it hands over and stops");
    let handed_over = await_shares(&fleet, &[0, 32, 32], SECONDS_MAX);
    fleet.kill(1);
    let taken_over = await_shares(&fleet, &[0, 0, 64], STALL_MAX);
    fleet.launch(1);
    fleet.launch(2);
    fleet.await_ready(SECONDS_MAX);
    let shared_again = await_fair(&fleet, SECONDS_MAX);

    eprintln!("joined {joined:?}, handed over {handed_over:?}, taken over {taken_over:?}, again {shared_again:?}");
    let acknowledged = load.finish();
    await_empty(&backend, DRAIN_MAX);
    event_log::assert_complete(&backend, &acknowledged);
    fleet.assert_no_unexpected_exit();
}

#[test]
fn a_drained_instance_hands_over_without_waiting_for_its_leases() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &LONG_TIMEOUTS);
    await_shares(&fleet, &[32, 32], SECONDS_MAX);
    let load = LoadOnAll::start(&fleet.endpoints_with_short_timeout());

    let mut leaving = fleet.take(0);
    leaving.signal("TERM");
    assert!(leaving.await_exit(SECONDS_MAX).success());
    let handed_over = await_shares(&fleet, &[0, 64], SECONDS_MAX);

    let acknowledged = load.finish();
    let (more, sent) = create_and_await_sent(&backend, &fleet.endpoints()[1], Instant::now(), SECONDS_MAX);
    eprintln!("handed over {handed_over:?} after the exit, every event sent {sent:?}");
    event_log::assert_complete(&backend, &acknowledged.into_iter().chain(more).collect());
}

#[test]
fn after_kill_9_the_relay_stalls_for_one_dead_after_and_one_lease_at_most() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &[DEFAULT_PARTITIONS]);
    await_shares(&fleet, &[32, 32], SECONDS_MAX);
    let load = LoadOnAll::start(&fleet.endpoints_with_short_timeout());

    fleet.kill(0);
    let (more, stalled) = create_and_await_sent(&backend, &fleet.endpoints()[1], Instant::now(), STALL_MAX);

    eprintln!("every event sent {stalled:?} after the kill");
    assert!(stalled <= scaled(STALL_MAX), "{stalled:?}");
    let acknowledged = load.finish();
    await_empty(&backend, DRAIN_MAX);
    event_log::assert_complete(&backend, &acknowledged.into_iter().chain(more).collect());
}

#[test]
fn a_restart_with_the_same_instance_id_resumes_its_partitions_at_once() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &LONG_TIMEOUTS);
    await_shares(&fleet, &[32, 32], SECONDS_MAX);
    let load = LoadOnAll::start(&fleet.endpoints_with_short_timeout());

    fleet.kill(0);
    let started = Instant::now();
    fleet.launch(0);
    let ready = fleet.await_ready(SECONDS_MAX);
    let (more, _) = create_and_await_sent(&backend, &fleet.endpoints()[1], started, SECONDS_MAX);

    eprintln!("ready {ready:?}, every event sent {:?} after the start", started.elapsed());
    assert_eq!(fleet.shares(), [32, 32]);
    let acknowledged = load.finish();
    await_empty(&backend, DRAIN_MAX);
    event_log::assert_complete(&backend, &acknowledged.into_iter().chain(more).collect());
}

#[test]
fn a_zombie_that_resumes_after_its_lease_changes_nothing() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &[DEFAULT_PARTITIONS]);
    await_shares(&fleet, &[32, 32], SECONDS_MAX);
    let load = LoadOnAll::start(&fleet.endpoints_with_short_timeout());

    for _ in 0..3 {
        fleet.freeze(1);
        await_shares(&fleet, &[0, 64], STALL_MAX);
        let (epochs, started) = (owners_by_epoch(&backend), Instant::now());
        fleet.resume(1);
        watch_epochs(&backend, epochs);
        await_shares(&fleet, &[32, 32], SECONDS_MAX);
        eprintln!("a resumed instance has its share again after {:?}", started.elapsed());
    }

    let acknowledged = load.finish();
    await_empty(&backend, DRAIN_MAX);
    event_log::assert_complete(&backend, &acknowledged);
    fleet.assert_no_unexpected_exit();
}

/// The owner of each partition, by partition and epoch.
fn owners_by_epoch(backend: &Backend) -> BTreeMap<(u32, u64), String> {
    let rows = backend.database.rows("SELECT partition, epoch, owner FROM outbox_lease WHERE owner IS NOT NULL");
    rows.into_iter()
        .map(|row| ((row[0].parse().expect("a number"), row[1].parse().expect("a number")), row[2].clone()))
        .collect()
}

/// Watches the leases for two seconds: the owner of a partition and epoch never changes, and epochs never decrease.
fn watch_epochs(backend: &Backend, mut seen: BTreeMap<(u32, u64), String>) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        for (acquisition, owner) in owners_by_epoch(backend) {
            let before = seen.entry(acquisition).or_insert_with(|| owner.clone());
            assert_eq!(*before, owner, "partition and epoch {acquisition:?} have another owner");
            let latest = seen.range((acquisition.0, 0)..=(acquisition.0, u64::MAX)).next_back().map(|(at, _)| *at);
            assert_eq!(latest, Some(acquisition), "an epoch decreased");
        }
        pause(Duration::from_millis(20));
    }
}

#[test]
fn a_list_on_one_instance_shows_the_change_that_another_one_answered() {
    let backend = Backend::exclusive();
    let request_max = setting(Duration::from_secs(5));
    let fleet = Fleet::start(&backend, 2, &[("POSTHASTE__HTTP__REQUEST_TIMEOUT", &request_max)]);
    let endpoints = fleet.endpoints();
    let (one, other) = (&endpoints[0], &endpoints[1]);
    let user = one.user();
    let listed = |http: &Http| http.get("/orders", Some(&user)).json().as_array().expect("a list").len();
    let hits = |http: &Http| metric(http, "cache_hit_count_total");
    until("lists are read from Redis", SECONDS_MAX, || {
        let before = hits(other);
        listed(other);
        (hits(other) > before).then_some(())
    });

    for placed in 1..=20 {
        let (writer, reader) = if placed % 2 == 0 { (one, other) } else { (other, one) };
        let failed = || endpoints.iter().map(|http| metric(http, REDIS_FAILURES)).sum::<f64>();
        let before = failed();
        assert_eq!(writer.post("/orders", &user, &[], &tea_order(1)).status, 201);
        let lists = || (listed(reader), listed(writer), listed(reader));
        let seen = lists();
        if failed() > before {
            // Redis did not answer the writer in time: the reader's list is older for a moment.
            until("every list is new", SECONDS_MAX, || (lists() == (placed, placed, placed)).then_some(()));
        } else {
            assert_eq!(seen, (placed, placed, placed));
        }
    }

    fleet.cache(1).stall();
    assert_eq!(listed(other), 20, "without Redis the list comes from the store");
    assert_eq!(one.post("/orders", &user, &[], &tea_order(1)).status, 201);
    assert_eq!(listed(other), 21);
    fleet.cache(1).resume();
    // An invalidation that Redis answered late leaves the older list for a moment.
    until("the list is new", SECONDS_MAX, || (listed(other) == 21).then_some(()));
}
