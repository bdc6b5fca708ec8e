//! The console's pages: what they show of the house, and what their forms do in it.
use app::dispatch::InjectedFault;
use kit::Backend;
use ports::broker::Record;
use ports::outbox::Depth;

use crate::console::{Browser, PAGES, page};
use crate::dead_letters::set_aside;
use crate::fakes::KEY;
use crate::house::*;

#[actix_web::test]
async fn the_overview_tells_how_the_service_fares_and_links_to_each_metric() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let calm = page(&browser.get("/console").await, 200);
    for told in [
        "ACTIVE",
        "NORMAL",
        "closed",
        "none waits",
        "region r1",
        "instance one",
        ">db<",
        "You are <strong>root</strong>",
    ] {
        assert!(calm.contains(told), "{told} is not in {calm}");
    }

    house.state.observe();
    house.vitals.update(|snapshot| {
        (snapshot.passive, snapshot.breaker) = (true, "open");
        snapshot.depth = Depth {
            pending: 41,
            parked: 3,
            oldest_unsent: Some(std::time::Duration::from_secs(90)),
            ..Depth::default()
        };
    });
    house.state.observe();
    let text = browser.get("/console").await.text();

    for told in [
        "PASSIVE",
        "90 s",
        "PENDING: 41 now, 41 at most",
        "PARKED: 3 now, 3 at most",
        "role=\"img\"",
        "aria-live=\"polite\"",
    ] {
        assert!(text.contains(told), "{told} is not in {text}");
    }
    assert!(text.contains("■</span> open"), "a state is a shape and a word: {text}");
    let metrics: Vec<&str> =
        text.split("href=\"/actuator/metrics/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(metrics.len(), 9, "{metrics:?}");
    for name in metrics {
        assert_eq!(house.ask(get(&format!("/actuator/metrics/{name}"))).await.status, 200, "{name}");
    }
}

#[actix_web::test]
async fn every_page_says_where_the_same_data_is_told_elsewhere() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let partition = set_aside(&house, 1).await;
    let letter = format!("/dlt/{partition}/0");
    for path in PAGES.into_iter().chain(["/dlt/redrive", letter.as_str()]) {
        let text = browser.get(&format!("/console{path}")).await.text();
        let curl = text.split("curl -s &#39;").nth(1).or_else(|| text.split("curl -s '").nth(1));
        let target = curl
            .and_then(|rest| rest.strip_prefix("http://localhost:8080"))
            .and_then(|rest| rest.split(['\'', '&']).next());
        let target = target.unwrap_or_else(|| panic!("{path}: {text}"));
        assert!(path == "/events" || text.contains("<code>posthaste "), "{path}");
        if path != "/events" {
            assert_eq!(house.ask(get(target).insert_header(admin())).await.status, 200, "{path}: {target}");
        }
    }
    let text = browser.get("/console/outbox?status=PARKED&type=A%27B").await.text();
    assert!(text.contains("/admin/outbox?status=PARKED&amp;type=A%27B"), "{text}");
    assert!(text.contains(r"posthaste outbox list --status PARKED --type 'A'\''B'"), "{text}");
}

#[actix_web::test]
async fn actors_stand_under_their_supervisor_and_harm_is_offered_only_where_faults_are_on() {
    let (house, safe) = (House::new(), House::planned(Plan { faults_enabled: false, ..Plan::default() }));
    let browser = Browser::log_in(&house).await;
    let text = browser.get("/console/actors").await.text();
    for told in [
        "/relay/partition-worker-7",
        "PartitionWorker",
        "●</span> running",
        "0 of 16",
        "Fault injection is on",
        "Kill (panic)",
    ] {
        assert!(text.contains(told), "{told} is not in {text}");
    }

    for (action, fault) in [
        ("panic", InjectedFault::Panic),
        ("stop", InjectedFault::Stop),
        ("pause", InjectedFault::Pause),
        ("resume", InjectedFault::Resume),
    ] {
        let fields = [("path", "/relay/partition-worker-7"), ("action", action)];
        let after = browser.act("/console/actors/fault", &fields).await;
        assert!(after.contains(&format!("/relay/partition-worker-7 was told: {action}.")), "{after}");
        let done = house.desk.faults.lock().pop();
        assert_eq!(done, Some(("/relay/partition-worker-7".to_owned(), fault, "root".to_owned())));
    }
    for fields in [[("path", "/nobody"), ("action", "panic")], [("path", "/consumer-0"), ("action", "kill")]] {
        page(&browser.send("/console/actors/fault", &fields).await, 404);
    }
    assert!(!browser.get("/console/actors").await.text().contains("was told"), "a note is told once");

    let browser = Browser::log_in(&safe).await;
    let text = browser.get("/console/actors").await.text();
    assert!(text.contains("PartitionWorker") && !text.contains("Kill") && !text.contains("Fault injection"), "{text}");
    page(&browser.send("/console/actors/fault", &[("path", "/consumer-0"), ("action", "panic")]).await, 404);
}

#[actix_web::test]
async fn rows_are_filtered_explained_and_acted_on_with_a_reason() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let all = browser.get("/console/outbox").await.text();
    for told in [
        "/console/outbox/1\"",
        "/console/outbox/4\"",
        KEY,
        "refused",
        "1 partitions, 0 without an owner, 2 rows",
        "epoch 3",
    ] {
        assert!(all.contains(told), "{told} is not in {all}");
    }
    let parked = browser.get("/console/outbox?status=PARKED").await.text();
    assert!(parked.contains("/console/outbox/2\"") && !parked.contains("/console/outbox/3\""), "{parked}");
    let behind = browser.get("/console/outbox?after=3").await.text();
    assert!(behind.contains("First page") && !behind.contains("/console/outbox/3\""), "{behind}");

    let blocked = browser.get("/console/outbox/3").await.text();
    assert!(blocked.contains("BLOCKED_BY_HEAD") && blocked.contains("href=\"/console/outbox/2\""), "{blocked}");
    let sent = browser.get("/console/outbox/1").await.text();
    assert!(sent.contains("order.events, partition 3, offset 17") && !sent.contains("Retry now"), "{sent}");

    let retried = browser.act("/console/outbox/2/retry", &[("reason", " it is back ")]).await;
    assert!(retried.contains("Row 2: retry was done.") && retried.contains("PENDING"), "{retried}");
    assert!(browser.act("/console/outbox/2/park", &[("reason", "not yet")]).await.contains("■</span> PARKED"));
    for reason in ["", "  ", &"x".repeat(1_001)] {
        assert!(page(&browser.send("/console/outbox/2/retry", &[("reason", reason)]).await, 400).contains("reason"));
    }
    page(&browser.send("/console/outbox/1/retry", &[("reason", "x")]).await, 409);
    page(&browser.send("/console/outbox/9/park", &[("reason", "x")]).await, 404);
    let audits = house.rows.audits.lock();
    let told: Vec<_> = audits.iter().map(|audit| (&*audit.operator, &*audit.reason)).collect();
    assert_eq!(told, [("root", "it is back"), ("root", "not yet")]);
}

#[actix_web::test]
async fn parked_rows_are_counted_before_they_are_redriven() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let path = format!("/console/outbox/redrive?key={KEY}&failureType=NETWORK");

    let counted = browser.get(&path).await.text();
    assert!(counted.contains("<strong>1</strong> parked rows match"), "{counted}");
    assert!(counted.contains(&format!("<input type=\"hidden\" name=\"key\" value=\"{KEY}\">")), "{counted}");
    assert!(counted.contains(&format!("posthaste outbox redrive --dry-run --key {KEY} --failure NETWORK")));
    assert!(house.rows.audits.lock().is_empty());

    for fields in [vec![("reason", "go")], vec![("reason", "go"), ("matched", "0")], vec![("matched", "1")]] {
        page(&browser.send("/console/outbox/redrive", &fields).await, 400);
    }
    let done = browser.act("/console/outbox/redrive", &[("key", KEY), ("matched", "1"), ("reason", "go")]).await;
    assert!(done.contains("1 parked rows are due now."), "{done}");
    assert_eq!(house.rows.audits.lock().iter().map(|audit| &*audit.reason).collect::<Vec<_>>(), ["go"]);
}

#[actix_web::test]
async fn letters_are_looked_at_and_sent_back_with_a_reason() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let partition = set_aside(&house, 4).await;
    let letter = format!("/console/dlt/{partition}/0");

    let all = browser.get("/console/dlt").await.text();
    assert!(
        all.contains(&format!("href=\"{letter}\"")) && all.contains("not now") && all.contains("VALIDATION"),
        "{all}"
    );
    let few = browser.get("/console/dlt?failureType=SYSTEM").await.text();
    assert!(few.contains(&format!("{partition}/2\"")) && !few.contains(&format!("{partition}/1\"")), "{few}");
    let one = browser.get(&letter).await.text();
    for told in [
        "kafka_original-offset",
        "0x000000000000002a",
        "&quot;n&quot;: 0",
        "posthaste.HandlerFault",
        "order.events, partition 7, offset 42",
    ] {
        assert!(one.contains(told), "{told} is not in {one}");
    }

    let back = browser.act(&format!("{letter}/redrive"), &[("reason", "by hand")]).await;
    assert!(
        back.contains("went back to its topic") && back.contains("sent back by root") && back.contains("by hand"),
        "{back}"
    );
    page(&browser.send(&format!("{letter}/redrive"), &[("reason", "again")]).await, 409);
    page(&browser.send(&format!("{letter}/redrive"), &[]).await, 400);

    let counted = browser.get("/console/dlt/redrive?failureType=VALIDATION").await.text();
    assert!(
        counted.contains("<strong>2</strong> letters match") && counted.contains("name=\"matched\" value=\"2\""),
        "{counted}"
    );
    assert!(page(&browser.send("/console/dlt/redrive", &[("reason", "go")]).await, 400).contains("count first"));
    let fields = [("failureType", "VALIDATION"), ("matched", "2"), ("reason", "mended")];
    assert!(browser.act("/console/dlt/redrive", &fields).await.contains("2 letters went back to their topic."));
    let back = house.log.topics().read("order.events", partition, 0, 10).await.expect("read");
    let values: Vec<_> = back.iter().map(|one| String::from_utf8_lossy(&one.record.value).into_owned()).collect();
    assert_eq!(values, [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":3}"#]);

    let none = House::planned(Plan { broker: false, ..Plan::default() });
    assert!(page(&Browser::log_in(&none).await.get("/console/dlt").await, 404).contains("no broker"));
}

#[actix_web::test]
async fn events_that_are_remembered_stand_on_the_page() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let all = browser.get("/console/events").await.text();
    assert!(all.contains("data-last=\"3\"") && all.contains("{&quot;n&quot;:3}"), "{all}");
    assert!(all.find("&quot;n&quot;:3").unwrap() < all.find("&quot;n&quot;:1").unwrap(), "the newest first");
    assert!(all.contains("href=\"/console/events?event=child_exited\""), "{all}");
    let none = browser.get("/console/events?event=nothing").await.text();
    assert!(!none.contains("&quot;n&quot;") && none.contains("data-only=\"nothing\""), "{none}");
}

#[actix_web::test]
async fn hostile_texts_stay_texts() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let hostile = "\"><script>alert(1)</script>";
    let record = Record {
        topic: "order.events-dlt".into(),
        key: hostile.into(),
        headers: vec![
            (hostile.into(), hostile.as_bytes().into()),
            ("kafka_exception-message".into(), hostile.as_bytes().into()),
        ],
        value: hostile.as_bytes().into(),
        timestamp: domain::Timestamp::from_millis(NOW),
    };
    let place = house.log.broker().append(vec![record]).await.expect("appended").remove(0);
    house.rows.rows.lock()[1].last_failure_reason = Some(hostile.to_owned());
    house.vitals.update(|snapshot| snapshot.no_room = Some(hostile.to_owned()));
    let encoded = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";

    let letter = format!("/console/dlt/{}/{}", place.partition, place.offset);
    let paths = [
        "/console".to_owned(),
        "/console/dlt".to_owned(),
        letter,
        format!("/console/dlt?key={encoded}&type={encoded}"),
        format!("/console/dlt/redrive?type={encoded}"),
        "/console/outbox".to_owned(),
        "/console/outbox/2".to_owned(),
        format!("/console/outbox?type={encoded}"),
        format!("/console/events?event={encoded}"),
    ];
    for path in paths {
        let text = page(&browser.get(&path).await, 200);
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"), "{path}");
    }
    let host =
        get("/console").insert_header(("cookie", browser.cookie.as_str())).insert_header(("host", "x'; rm -rf ~ #"));
    assert!(house.ask(host).await.text().contains("http://localhost:8080/"), "a host that is none is not shown");
}
