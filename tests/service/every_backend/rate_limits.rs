//! Rate limits of tiers from the configuration: they need no Redis, also to be changed at run time.
use std::fs;
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::http::{Response, tea_order};
use crate::harness::metrics::{metric, metrics};
use crate::harness::process::Posthaste;

const WAIT_MAX: Duration = Duration::from_secs(20);

/// The policy that the first limited response names: a request to which a slow Redis gives no answer is admitted without a limit.
fn policy(request: impl Fn() -> Response) -> String {
    until("a limit applies", WAIT_MAX, || request().header("ratelimit-policy").map(str::to_owned))
}

#[test]
fn a_configured_policy_limits_its_tier_and_class_only() {
    let backend = Backend::new();
    let settings = [
        ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
        ("POSTHASTE__RATE_LIMIT__CAPACITY", "1000"),
        ("POSTHASTE__RATE_LIMIT__WINDOW", "24h"),
        ("POSTHASTE__RATE_LIMIT__POLICIES", "gold:write=8/24h,gold:read=80/12h"),
    ];
    let service = Posthaste::start(&backend, &settings);
    let [gold, silver] = ["gold", "silver"].map(|tier| service.http.token_of_tier("ann", "USER", tier));
    let post = |token: &str| service.http.post("/orders", token, &[], &tea_order(1));
    let (open, rejected) =
        ("rate_limit_fail_open_count_total", "rate_limit_rejections_by_policy_total{policy=\"gold:write\"}");
    let mut subjects = 0;

    let once = |token: &str| {
        let created = service.http.send_once("POST", "/orders", Some(token), &[], Some(tea_order(1).to_string()));
        created.expect("a response")
    };

    // Each attempt has a bucket of its own. A request that a slow store refused has used up a token.
    let (responses, rejections) = until("Redis and the store answer each request in time", WAIT_MAX, || {
        subjects += 1;
        let token = service.http.token_of_tier(&format!("ann-{subjects}"), "USER", "gold");
        let [open_before, before] = metrics(&service.http, [open, rejected]);
        let responses: Vec<_> = (0..11).map(|_| once(&token)).collect();
        let is_stored = responses.iter().all(|response| [201, 429].contains(&response.status));
        let is_limited = metric(&service.http, open) == open_before;
        (is_stored && is_limited).then(|| (responses, metric(&service.http, rejected) - before))
    });

    let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [[201; 10].as_slice(), &[429]].concat(), "a bucket holds a quarter more than its capacity");
    assert_eq!(responses[0].header("ratelimit-policy"), Some("\"gold:write\";q=8;w=86400"));
    assert_eq!(rejections, 1.0);
    let read = || {
        let read = service.http.get("/orders", Some(&gold));
        assert_eq!(read.status, 200, "{}", read.text);
        read
    };
    assert_eq!(policy(read), "\"gold:read\";q=80;w=43200");
    assert_eq!(policy(|| post(&silver)), "\"default\";q=1000;w=86400");
}

#[test]
fn limits_that_change_in_the_file_hold_after_sighup() {
    let backend = Backend::new();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let write = |text: &str| fs::write(file.path(), text).expect("the file is written");
    write("[rate_limit]\nenabled = true\ncapacity = 1000\nwindow = \"24h\"\npolicies = \"gold:write=500/24h\"\n");
    let service = Posthaste::start_with_file(&backend, file.path());
    let [gold, silver] = ["gold", "silver"].map(|tier| service.http.token_of_tier("ann", "USER", tier));
    let policy = |token: &str| {
        policy(|| {
            let created = service.http.post("/orders", token, &[], &tea_order(1));
            assert_eq!(created.status, 201, "{}", created.text);
            created
        })
    };
    assert_eq!(policy(&gold), "\"gold:write\";q=500;w=86400");

    let reload = |event: &str, count: usize| {
        service.signal("HUP");
        until("the configuration was read", Duration::from_secs(10), || {
            let logged = service.logged(event);
            (logged.len() == count).then(|| logged[count - 1].clone())
        })
    };
    write(
        "[rate_limit]\nenabled = true\ncapacity = 90\nwindow = \"1h\"\npolicies = \"gold:write=8/12h\"\n\n[orders]\nshards = 3\n",
    );
    let reloaded = reload("configuration_reloaded", 1);
    assert_eq!(reloaded["applied"], "rate_limit.capacity,rate_limit.policies,rate_limit.window");
    assert_eq!(reloaded["restart_needed"], "orders.shards");
    assert_eq!(policy(&gold), "\"gold:write\";q=8;w=43200");
    assert_eq!(policy(&silver), "\"default\";q=90;w=3600");

    write("[rate_limit]\ncapacity = -1\n");
    let rejected = reload("configuration_rejected", 1);
    assert!(rejected["error"].as_str().is_some_and(|error| error.contains("rate_limit.capacity")), "{rejected}");
    assert_eq!(policy(&silver), "\"default\";q=90;w=3600", "the limits stay as they were");
}
