//! The console's pages: their contents, and the effects of their forms.
use app::dispatch::InjectedFault;
use kit::Backend;
use ports::broker::Record;
use ports::outbox::RowCounts;

use crate::console::access::{Browser, PAGES, page};
use crate::dead_letters::{dead_letter_records, dead_letter_records_of};
use crate::support::fake_ports::KEY;
use crate::support::test_server::*;

#[actix_web::test]
async fn the_overview_shows_the_service_state_and_links_to_each_metric() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let calm = page(&browser.get("/console").await, 200);
    for expected in [
        "ACTIVE",
        "NORMAL",
        "closed",
        "no unsent event",
        "region r1",
        "instance one",
        ">db<",
        "Logged in as <strong>root</strong>",
    ] {
        assert!(calm.contains(expected), "{expected} is not in {calm}");
    }

    server.state.sample_depth();
    server.health.update(|snapshot| {
        (snapshot.passive, snapshot.breaker) = (true, "open");
        snapshot.depth = RowCounts {
            pending: 41,
            parked: 3,
            oldest_unsent: Some(std::time::Duration::from_secs(90)),
            ..RowCounts::default()
        };
    });
    server.state.sample_depth();
    let text = browser.get("/console").await.text();

    for expected in [
        "PASSIVE",
        "90 s",
        "PENDING: 41 now, 41 at most",
        "PARKED: 3 now, 3 at most",
        "role=\"img\"",
        "aria-live=\"polite\"",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(text.contains("■</span> open"), "a state has a shape and a text: {text}");
    let metrics: Vec<&str> =
        text.split("href=\"/actuator/metrics/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(metrics.len(), 19, "{metrics:?}");
    for name in metrics {
        assert_eq!(server.send(get(&format!("/actuator/metrics/{name}"))).await.status, 200, "{name}");
    }
}

#[actix_web::test]
async fn every_page_shows_the_curl_and_cli_commands_for_its_data() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let partition = dead_letter_records(&server, 1).await;
    let dead_letter = format!("/dlt/{partition}/0");
    for path in PAGES.into_iter().chain(["/dlt/redrive", dead_letter.as_str()]) {
        let text = browser.get(&format!("/console{path}")).await.text();
        let curl = text.split("curl -s &#39;").nth(1).or_else(|| text.split("curl -s '").nth(1));
        let target = curl
            .and_then(|rest| rest.strip_prefix("http://localhost:8080"))
            .and_then(|rest| rest.split(['\'', '&']).next());
        let target = target.unwrap_or_else(|| panic!("{path}: {text}"));
        assert!(path == "/events" || text.contains("<code>posthaste "), "{path}");
        if path != "/events" {
            assert_eq!(server.send(get(target).insert_header(admin())).await.status, 200, "{path}: {target}");
        }
    }
    let text = browser.get("/console/outbox?status=PARKED&type=A%27B").await.text();
    assert!(text.contains("/admin/outbox?status=PARKED&amp;type=A%27B"), "{text}");
    assert!(text.contains(r"posthaste outbox list --status PARKED --type 'A'\''B'"), "{text}");
}

#[actix_web::test]
async fn actors_are_grouped_by_supervisor_and_faults_shown_only_when_enabled() {
    let (server, safe) =
        (TestServer::new(), TestServer::with_config(TestConfig { faults_enabled: false, ..TestConfig::default() }));
    let browser = Browser::log_in(&server).await;
    let text = browser.get("/console/actors").await.text();
    for expected in [
        "/relay/partition-worker-7",
        "PartitionWorker",
        "●</span> running",
        "0 of 16",
        "Fault injection is enabled",
        "Kill (panic)",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }

    for (action, fault) in [
        ("panic", InjectedFault::Panic),
        ("stop", InjectedFault::Stop),
        ("pause", InjectedFault::Pause),
        ("resume", InjectedFault::Resume),
    ] {
        let fields = [("path", "/relay/partition-worker-7"), ("action", action)];
        let after = browser.act("/console/actors/fault", &fields).await;
        assert!(after.contains(&format!("/relay/partition-worker-7: {action} was injected.")), "{after}");
        let done = server.dispatch.faults.lock().pop();
        assert_eq!(done, Some(("/relay/partition-worker-7".to_owned(), fault, "root".to_owned())));
    }
    for fields in [[("path", "/unknown"), ("action", "panic")], [("path", "/consumer-0"), ("action", "kill")]] {
        page(&browser.send("/console/actors/fault", &fields).await, 404);
    }
    assert!(!browser.get("/console/actors").await.text().contains("was injected"), "a note is shown once");

    let browser = Browser::log_in(&safe).await;
    let text = browser.get("/console/actors").await.text();
    assert!(text.contains("PartitionWorker") && !text.contains("Kill") && !text.contains("Fault injection"), "{text}");
    page(&browser.send("/console/actors/fault", &[("path", "/consumer-0"), ("action", "panic")]).await, 404);
}

#[actix_web::test]
async fn rows_are_filtered_diagnosed_and_changed_with_a_reason() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let all = browser.get("/console/outbox").await.text();
    for expected in [
        "/console/outbox/1\"",
        "/console/outbox/4\"",
        KEY,
        "refused",
        "1 partitions, 0 without an owner, 2 unsent rows",
        "epoch 3",
        "expired <time",
    ] {
        assert!(all.contains(expected), "{expected} is not in {all}");
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
    assert!(retried.contains("Row 2: retry succeeded.") && retried.contains("PENDING"), "{retried}");
    assert!(browser.act("/console/outbox/2/park", &[("reason", "not yet")]).await.contains("■</span> PARKED"));
    for reason in ["", "  ", &"x".repeat(1_001)] {
        assert!(page(&browser.send("/console/outbox/2/retry", &[("reason", reason)]).await, 400).contains("reason"));
    }
    page(&browser.send("/console/outbox/1/retry", &[("reason", "x")]).await, 409);
    page(&browser.send("/console/outbox/9/park", &[("reason", "x")]).await, 404);
    let audits = server.outbox.audits.lock();
    let texts: Vec<_> = audits.iter().map(|audit| (&*audit.operator, &*audit.reason)).collect();
    assert_eq!(texts, [("root", "it is back"), ("root", "not yet")]);
}

#[actix_web::test]
async fn rows_are_filtered_by_failure_type_on_the_page_and_over_http() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let page_of = async |query: &str| browser.get(&format!("/console/outbox?{query}")).await.text();

    let network = page_of("failureType=NETWORK&status=PARKED").await;
    assert!(network.contains("/console/outbox/2\"") && !network.contains("/console/outbox/3\""), "{network}");
    for expected in [
        "<option value=\"NETWORK\" selected>",
        "data-label=\"Failure\">NETWORK<",
        "/console/outbox?status=FAILED&amp;failureType=NETWORK",
        "/console/outbox/redrive?failureType=NETWORK",
        "/admin/outbox?status=PARKED&amp;failureType=NETWORK",
        "posthaste outbox list --status PARKED --failure NETWORK",
    ] {
        assert!(network.contains(expected), "{expected} is not in {network}");
    }
    assert!(page_of("failureType=TIMEOUT").await.contains("No rows match"));
    let refused = page(&browser.get("/console/outbox?failureType=x&key=k").await, 400);
    assert!(refused.contains("must be one of NETWORK") && refused.contains("value=\"k\""), "{refused}");

    let ids = async |query: &str| {
        let reply = server.send(get(&format!("/admin/outbox{query}")).insert_header(admin())).await;
        let rows = reply.json()["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row["id"].as_i64()).collect::<Vec<_>>()
    };
    assert_eq!(ids("?failureType=NETWORK").await, [2]);
    assert_eq!(ids("?failureType=").await, [1, 2, 3, 4]);
    server.send(get("/admin/outbox?failureType=x").insert_header(admin())).await.problem(400, "BAD_REQUEST");
}

#[actix_web::test]
async fn parked_rows_are_counted_before_they_are_redriven() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let path = format!("/console/outbox/redrive?key={KEY}&failureType=NETWORK");

    let counted = browser.get(&path).await.text();
    assert!(counted.contains("<strong>1</strong> parked row matches"), "{counted}");
    assert!(counted.contains(&format!("<input type=\"hidden\" name=\"key\" value=\"{KEY}\">")), "{counted}");
    assert!(counted.contains(&format!("posthaste outbox redrive --dry-run --key {KEY} --failure NETWORK")));
    assert!(server.outbox.audits.lock().is_empty());

    for fields in [vec![("reason", "go")], vec![("reason", "go"), ("matched", "0")], vec![("matched", "1")]] {
        page(&browser.send("/console/outbox/redrive", &fields).await, 400);
    }
    let done = browser.act("/console/outbox/redrive", &[("key", KEY), ("matched", "1"), ("reason", "go")]).await;
    assert!(done.contains("1 parked row is due now."), "{done}");
    assert_eq!(server.outbox.audits.lock().iter().map(|audit| &*audit.reason).collect::<Vec<_>>(), ["go"]);
}

#[actix_web::test]
async fn dead_letters_are_shown_and_redriven_with_a_reason() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let partition = dead_letter_records(&server, 4).await;
    let dead_letter = format!("/console/dlt/{partition}/0");

    let all = browser.get("/console/dlt").await.text();
    assert!(
        all.contains(&format!("href=\"{dead_letter}\"")) && all.contains("not now") && all.contains("VALIDATION"),
        "{all}"
    );
    let few = browser.get("/console/dlt?failureType=SYSTEM").await.text();
    assert!(few.contains(&format!("{partition}/2\"")) && !few.contains(&format!("{partition}/1\"")), "{few}");
    let one = browser.get(&dead_letter).await.text();
    for expected in [
        "kafka_original-offset",
        "0x000000000000002a",
        "&quot;n&quot;: 0",
        "posthaste.HandlerFault",
        "order.events, partition 7, offset 42",
    ] {
        assert!(one.contains(expected), "{expected} is not in {one}");
    }

    let back = browser.act(&format!("{dead_letter}/redrive"), &[("reason", "by hand")]).await;
    assert!(
        back.contains("was sent back to its topic") && back.contains("sent back by root") && back.contains("by hand"),
        "{back}"
    );
    page(&browser.send(&format!("{dead_letter}/redrive"), &[("reason", "again")]).await, 409);
    page(&browser.send(&format!("{dead_letter}/redrive"), &[]).await, 400);

    let counted = browser.get("/console/dlt/redrive?failureType=VALIDATION").await.text();
    assert!(
        counted.contains("<strong>2</strong> dead letters match") && counted.contains("name=\"matched\" value=\"2\""),
        "{counted}"
    );
    assert!(page(&browser.send("/console/dlt/redrive", &[("reason", "go")]).await, 400).contains("count first"));
    let fields = [("failureType", "VALIDATION"), ("matched", "2"), ("reason", "fixed")];
    assert!(browser.act("/console/dlt/redrive", &fields).await.contains("2 dead letters were sent back to the topic."));
    let back = server.broker.topics().read("order.events", partition, 0, 10).await.expect("read");
    let values: Vec<_> = back.iter().map(|one| String::from_utf8_lossy(&one.record.value).into_owned()).collect();
    assert_eq!(values, [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":3}"#]);

    let none = TestServer::with_config(TestConfig { broker: false, ..TestConfig::default() });
    assert!(page(&Browser::log_in(&none).await.get("/console/dlt").await, 404).contains("no broker"));
}

#[actix_web::test]
async fn older_dead_letters_are_found_by_filter_and_by_link() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    assert!(browser.get("/console/dlt").await.text().contains("There are no dead letters."));
    let partition = dead_letter_records(&server, 200).await;
    let all_link = r#"href="/console/dlt?list=all""#;
    let latest = browser.get("/console/dlt").await.text();
    assert!(latest.contains(&format!("{partition}/0\"")) && !latest.contains(all_link), "all are shown: {latest}");

    // The newest 200 are sent back; the oldest one waits.
    dead_letter_records(&server, 1).await;
    for offset in 1..=200 {
        browser.act(&format!("/console/dlt/{partition}/{offset}/redrive"), &[("reason", "by hand")]).await;
    }
    let latest = browser.get("/console/dlt").await.text();
    assert!(latest.contains("No dead letter waits among the latest.") && latest.contains(all_link), "{latest}");
    let waiting = browser.get("/console/dlt?redriven=false").await.text();
    assert!(
        waiting.contains(&format!("{partition}/0\"")) && !waiting.contains(&format!("{partition}/1\"")),
        "{waiting}"
    );
    let all = browser.get("/console/dlt?list=all").await.text();
    let (first, next) = (format!("{partition}/0\""), format!("href=\"/console/dlt?after={partition}/49%40"));
    assert!(all.contains(&first) && all.contains(&next), "from the first on: {all}");
    let none = browser.get("/console/dlt?key=other").await.text();
    assert!(none.contains("No dead letters match"), "{none}");
}

#[actix_web::test]
async fn dead_letters_of_every_topic_are_counted_shown_and_redriven() {
    let server = TestServer::new();
    let partition = dead_letter_records_of(&server, "invoices", 2).await;
    dead_letter_records(&server, 1).await;
    let browser = Browser::log_in(&server).await;
    let (dead_letter, topic) = (format!("/console/dlt/{partition}/0"), "topic=invoices");

    let overview = browser.get("/console").await.text();
    assert!(overview.contains("3 dead letters wait"), "the sum of both topics: {overview}");
    let orders = browser.get("/console/dlt").await.text();
    let count = r#"<a href="/console/dlt?topic=invoices">invoices</a> <strong>2</strong>"#;
    assert!(orders.contains(count) && !orders.contains(&format!("{dead_letter}?{topic}")), "{orders}");
    let invoices = browser.get(&format!("/console/dlt?{topic}")).await.text();
    let selected = r#"<option value="invoices" selected>invoices</option>"#;
    assert!(invoices.contains(&format!("href=\"{dead_letter}?{topic}\"")) && invoices.contains(selected), "{invoices}");
    assert!(invoices.contains("posthaste dlt list --topic invoices"), "{invoices}");
    let one = browser.get(&format!("{dead_letter}?{topic}")).await.text();
    assert!(one.contains("of invoices") && one.contains(r#"name="topic" value="invoices""#), "{one}");

    let fields = [("topic", "invoices"), ("reason", "fixed")];
    let sent = browser.act(&format!("{dead_letter}/redrive"), &fields).await;
    assert!(sent.contains("was sent back to its topic") && sent.contains("of invoices"), "{sent}");
    let counted = browser.get(&format!("/console/dlt/redrive?{topic}")).await.text();
    assert!(counted.contains("<strong>1</strong> dead letter matches"), "{counted}");
    let rest = browser.act("/console/dlt/redrive", &[fields[0], fields[1], ("matched", "1")]).await;
    assert!(rest.contains("1 dead letter was sent back to the topic.") && rest.contains(selected), "{rest}");
    let back = server.broker.topics().read("invoices", partition, 0, 10).await.expect("read");
    let values: Vec<_> = back.iter().map(|one| String::from_utf8_lossy(&one.record.value).into_owned()).collect();
    assert_eq!(values, [r#"{"n":0}"#, r#"{"n":1}"#]);
    let overview = browser.get("/console").await.text();
    assert!(overview.contains("1 dead letter waits"), "that of the orders: {overview}");
    assert!(page(&browser.get("/console/dlt?topic=shop").await, 404).contains("order.events, invoices"));
}

#[actix_web::test]
async fn recent_events_are_on_the_page() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let all = browser.get("/console/events").await.text();
    assert!(all.contains("data-last=\"3\"") && all.contains("{&quot;n&quot;:3}"), "{all}");
    assert!(all.find("&quot;n&quot;:3").unwrap() < all.find("&quot;n&quot;:1").unwrap(), "newest first");
    assert!(all.contains("href=\"/console/events?event=child_exited\""), "{all}");
    let none = browser.get("/console/events?event=nothing").await.text();
    assert!(!none.contains("&quot;n&quot;") && none.contains("data-only=\"nothing\""), "{none}");
}

#[actix_web::test]
async fn hostile_texts_are_escaped() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let hostile = "\"><script>alert(1)</script>";
    let record = Record {
        topic: "order.events-dlt".into(),
        key: hostile.into(),
        headers: [(hostile, hostile), ("kafka_exception-message", hostile)].into_iter().collect(),
        value: hostile.as_bytes().into(),
        timestamp: domain::Timestamp::from_millis(NOW),
    };
    let position = server.broker.broker().append(vec![record]).await.expect("appended").remove(0);
    server.outbox.rows.lock()[1].last_failure_reason = Some(hostile.to_owned());
    server.health.update(|snapshot| snapshot.storage_full = Some(hostile.to_owned()));
    let encoded = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";

    let dead_letter = format!("/console/dlt/{}/{}", position.partition, position.offset);
    let paths = [
        "/console".to_owned(),
        "/console/dlt".to_owned(),
        dead_letter,
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
    assert!(server.send(host).await.text().contains("http://localhost:8080/"), "an invalid host is not shown");
}
