//! The watch: saturation, dead letters and progress.

use std::time::Duration;

use supervision::{AskError, Root, Strategy, actor};
use tokio::time::Instant;

use crate::world::{Act, Ear, Env, LONG, Ping, SOON, Slow, Worker, ms, one, plain_bus, supervisor, worker};

story!(a_full_mailbox_is_told_once_and_once_when_it_has_recovered, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = actor(&bus, "/w", 10, Worker::factory("w", &env));
    let _root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    for (count, millis) in [(2, 3_000), (3, 2_000), (4, 1_000)] {
        for _ in 0..count {
            w.try_tell(Slow(millis, false)).map_err(|(error, _)| error).unwrap();
        }
    }
    let began = Instant::now();
    let full = ear.wait("mailbox_saturated", "/w").await;
    let recovered = ear.wait("mailbox_recovered", "/w").await;

    assert_eq!((full.get_number("outstanding"), full.get_number("capacity")), (Some(9), Some(10)));
    assert_eq!(recovered.get_number("outstanding"), Some(5));
    assert!(began.elapsed() >= ms(1_000) && began.elapsed() < ms(1_300), "{:?}", began.elapsed());
    tokio::time::sleep(SOON).await;
    assert!(ear.so_far().iter().all(|event| !event.event.starts_with("mailbox_")));
});

story!(a_burst_between_two_looks_is_not_missed, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = actor(&bus, "/w", 4, Worker::factory("w", &env));
    let _root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    for _ in 0..4 {
        w.try_tell(Slow(10, false)).map_err(|(error, _)| error).unwrap();
    }

    ear.wait("mailbox_saturated", "/w").await;
    ear.wait("mailbox_recovered", "/w").await;
});

story!(dead_letters_are_told_by_reason_and_at_most_once_a_second, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = actor(&bus, "/w", 1, Worker::factory("w", &env));
    let root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;
    w.try_tell(Slow(2_500, false)).map_err(|(error, _)| error).unwrap();

    for _ in 0..30 {
        assert!(w.try_tell(Ping).is_err());
        tokio::time::sleep(ms(50)).await;
    }
    tokio::time::sleep(ms(1_100)).await;

    let letters: Vec<_> = ear.so_far().into_iter().filter(|event| event.event == "dead_letter").collect();
    assert!(
        letters.iter().all(|letter| letter.reason == Some("overloaded") && letter.get_text("message") == Some("Ping"))
    );
    let counts: Vec<_> = letters.iter().map(|letter| letter.get_number("count").unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 30);
    assert!(counts.len() == 2 || counts.len() == 3, "{counts:?}");
    root.shutdown(SOON).await;
});

story!(a_message_whose_caller_gave_up_and_one_for_a_closed_inbox_are_dead_letters, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    root.bus().pause("/w", "test").unwrap();
    assert_eq!(w.ask(Ping, ms(50)).await, Err(AskError::Timeout));
    root.bus().resume("/w", "test").unwrap();

    let expired = ear.wait("dead_letter", "/w").await;
    assert_eq!((expired.reason, expired.get_text("message")), (Some("expired"), Some("Ping")));
    w.close();
    assert_eq!(w.try_tell(Ping).map_err(|(error, _)| error), Err(AskError::Closed));
    assert_eq!(ear.wait("dead_letter", "/w").await.reason, Some("closed"));
});

story!(a_child_without_progress_is_killed_and_its_queue_goes_on, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.stuck_after(ms(1_000)));
    let _root = Root::start(spec, bus).await;
    tokio::time::sleep(SOON).await;
    w.ask(Act::Hang, SOON).await.unwrap();
    let began = Instant::now();

    assert_eq!(w.ask(Ping, LONG).await, Ok((2, 1)));

    assert!(began.elapsed() >= ms(1_000) && began.elapsed() < ms(1_300), "{:?}", began.elapsed());
    let stuck = ear.wait("child_stuck", "/w").await;
    assert_eq!(stuck.get_number("outstanding"), Some(1));
    assert!(stuck.get_number("idle_ms").unwrap() > 1_000);
    let exited = ear.wait("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.get_text("detail")), (Some("killed"), Some("watchdog: no progress")));
});

story!(neither_slow_progress_nor_idleness_nor_a_pause_is_stuck, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.stuck_after(ms(1_000)));
    let root = Root::start(spec, bus).await;

    for step in 1..=5 {
        w.try_tell(Slow(step * 800, false)).map_err(|(error, _)| error).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    root.bus().pause("/w", "test").unwrap();
    w.try_tell(Ping).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    root.bus().resume("/w", "test").unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;

    assert_eq!(w.ask(Ping, SOON).await, Ok((1, 2)));
    assert!(ear.so_far().iter().all(|event| event.event != "child_stuck"));
});
